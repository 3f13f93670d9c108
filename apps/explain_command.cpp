#include <cstdio>
#include <iostream>

#include "apps/command_help.h"
#include "apps/commands.h"
#include "apps/run_command.h"
#include "plait/base/error.h"
#include "plait/config/explain.h"
#include "plait/config/scalar.h"

namespace plait {

CommandHelp explain_help() {
  return {
      "explain",
      "say what each line of a settings file became",
      {"explain CONFIG [--flag value ...] [--set a.b=c ...] [--json]"},
      "Reads CONFIG in whichever form it is (native, Hugging Face TrainingArguments, ModelScope, DeepSpeed) as plait train would, with the "
      "same flags, and prints for each line of the file what it became, or why it has no effect; then what the form settles by itself, the "
      "layout and the batch. Needs no model and no data. Ends with 0 when the settings are good, else with the code and the message that "
      "plait train would end with, after what could be explained.",
      {{"CONFIG", "FILE", "settings file"},
       {"--world_size", "N", "explain it for so many ranks (as a launcher would start)"},
       {"--json", "", "the same as JSON"}},
      true};
}

int explain_command(int argc, char** argv) {
  CommandFlags flags = read_flags(argc, argv, {"json", "world_size"}, /*config_argument=*/true);
  if (flags.help) {
    std::cout << help_text(explain_help());
    return 0;
  }
  if (flags.settings.config_path.empty() && flags.settings.flags.empty())
    throw_error(ExitCode::kUsage, "no settings file given: plait explain CONFIG [flags]");
  int64_t ranks = 0;
  if (std::string text = flags.value("world_size"); !text.empty()) {
    auto number = parse_integer_text(text);
    if (!number || *number < 1 || *number > 1000000)
      throw_error(ExitCode::kUsage, "--world_size ", text, " is not a number of ranks from 1 to 1000000");
    ranks = *number;
  }
  Explanation explanation = explain_settings(flags.settings, ranks);
  bool as_json = !flags.value("json").empty() && flags.value("json") != "false";
  std::cout << (as_json ? explanation_json(explanation) : explanation_text(explanation));
  std::cout.flush();
  if (explanation.exit_code != 0) throw Error(static_cast<ExitCode>(explanation.exit_code), explanation.error);
  return 0;
}

}  // namespace plait
