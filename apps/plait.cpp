// The program: picks the sub-command and turns what it throws into one message and an exit code (docs/errors.md).
//
// A new sub-command NAME:
//   1. apps/NAME_command.cpp defines `int NAME_command(int argc, char** argv)` and `CommandHelp NAME_help()` (apps/command_help.h): its
//      usage, one sentence or more, and its flags. At --help it prints help_text(NAME_help()) and returns 0.
//   2. apps/commands.h declares both.
//   3. kCommands below gets one line; its order is the order of `plait help`.
// `plait help`, the shell completions and the manual page follow from that; there is nothing else to keep in step.
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "apps/command_help.h"
#include "apps/commands.h"
#include "apps/version.h"
#include "plait/base/error.h"

namespace {

struct Command {
  plait::CommandHelp (*help)();
  int (*run)(int argc, char** argv);
};

// clang-format off
constexpr Command kCommands[] = {
    {plait::train_help, plait::train_command},
    {plait::eval_help, plait::eval_command},
    {plait::predict_help, plait::predict_command},
    {plait::launch_help, plait::launch_command},
    {plait::explain_help, plait::explain_command},
    {plait::schedule_help, plait::schedule_command},
    {plait::doctor_help, plait::doctor_command},
    {plait::completion_help, plait::completion_command},
    {plait::man_help, plait::man_command},
};
// clang-format on

std::string help() {
  std::string text =
      "usage: plait <command> [flags]\n\nHybrid-parallel (data x tensor x pipeline) training of transformer models.\n\ncommands:\n";
  for (const auto& command : plait::all_command_help()) {
    std::string name = command.name;
    name.resize(12, ' ');
    text += "  " + name + command.summary + "\n";
  }
  return text + "\nplait <command> --help tells the flags of a command; plait --version what this program is made of.\n";
}

int dispatch(int argc, char** argv) {
  std::string word = argc > 1 ? argv[1] : "";
  if (word == "--help" || word == "-h" || word == "help") {
    std::string topic = argc > 2 ? argv[2] : "";
    for (const auto& command : plait::all_command_help())
      if (command.name == topic) {
        std::cout << plait::help_text(command);
        return 0;
      }
    std::cout << help();
    return 0;
  }
  if (word == "--version" || word == "-V") {
    std::cout << plait::version_text();
    return 0;
  }
  if (word.empty()) plait::throw_error(plait::ExitCode::kUsage, "no command given\n", help());
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    names.push_back(command.help().name);
    if (word == names.back()) return command.run(argc - 1, argv + 1);
  }
  std::string close = plait::nearest(word, names);
  plait::throw_error(plait::ExitCode::kUsage, "unknown command '", word, "'", close.empty() ? "." : "; did you mean '" + close + "'?",
                     " Commands: ", plait::join(names));
}

int fail(plait::ExitCode code, const std::string& message) {
  std::cout.flush();
  std::fprintf(stderr, "plait: %s\n", message.c_str());
  return static_cast<int>(code);
}

}  // namespace

std::vector<plait::CommandHelp> plait::all_command_help() {
  std::vector<CommandHelp> all;
  for (const Command& command : kCommands) all.push_back(command.help());
  return all;
}

int main(int argc, char** argv) {
  try {
    int code = dispatch(argc, argv);
    if (!std::cout.flush() && code == 0) return fail(plait::ExitCode::kResource, "standard output cannot be written");
    return code;
  } catch (const plait::Error& error) {
    return fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(plait::ExitCode::kResource, "out of memory");
  } catch (const std::system_error& error) {  // a std::thread that cannot be started throws this one
    if (error.code() != std::errc::resource_unavailable_try_again)
      return fail(plait::ExitCode::kBug, plait::cat("bug in plait: ", error.what()));
    return fail(plait::ExitCode::kResource, "no thread can be started: memory (ulimit -v) or processes (ulimit -u) are used up");
  } catch (const std::exception& error) {
    return fail(plait::ExitCode::kBug, plait::cat("bug in plait: ", error.what()));
  } catch (...) {
    return fail(plait::ExitCode::kBug, "bug in plait: an exception of unknown type");
  }
}
