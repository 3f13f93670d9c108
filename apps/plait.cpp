// The program: picks the sub-command and turns what it throws into one message and an exit code (docs/errors.md).
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "plait/base/error.h"

namespace {

struct Command {
  const char* name;
  const char* summary;
  int (*run)(int argc, char** argv);
};

constexpr Command kCommands[] = {
    {"train", "train a model in a data x tensor x pipeline layout", plait::train_command},
    {"eval", "score a model folder on a data file", plait::eval_command},
    {"predict", "write class scores of a data file", plait::predict_command},
    {"schedule", "print, check and draw a pipeline schedule", plait::schedule_command},
};

std::string help() {
  std::string text =
      "usage: plait <command> [flags]\n\nHybrid-parallel (data x tensor x pipeline) training of transformer models.\n\ncommands:\n";
  for (const Command& command : kCommands) {
    std::string name = command.name;
    name.resize(12, ' ');
    text += "  " + name + command.summary + "\n";
  }
  return text + "\nplait <command> --help tells the flags of a command; plait --version the version.\n";
}

int dispatch(int argc, char** argv) {
  std::string word = argc > 1 ? argv[1] : "";
  if (word == "--help" || word == "-h" || word == "help") {
    std::cout << help();
    return 0;
  }
  if (word == "--version" || word == "-V") {
    std::cout << "plait " PLAIT_VERSION "\n";
    return 0;
  }
  if (word.empty()) plait::throw_error(plait::ExitCode::kUsage, "no command given\n", help());
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (word == command.name) return command.run(argc - 1, argv + 1);
    names.push_back(command.name);
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

int main(int argc, char** argv) {
  try {
    int code = dispatch(argc, argv);
    if (!std::cout.flush() && code == 0) return fail(plait::ExitCode::kResource, "standard output cannot be written");
    return code;
  } catch (const plait::Error& error) {
    return fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(plait::ExitCode::kResource, "out of memory");
  } catch (const std::exception& error) {
    return fail(plait::ExitCode::kBug, plait::cat("bug in plait: ", error.what()));
  } catch (...) {
    return fail(plait::ExitCode::kBug, "bug in plait: an exception of unknown type");
  }
}
