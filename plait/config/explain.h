// `plait explain`: what each line of a settings file became, from the record loading left (settings_trace.h); no second reader.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plait/config/load_config.h"

namespace plait {

struct ExplainedLine {
  std::string place;    // "config.json:12"
  std::string key;      // "train.optimizer.lr"
  std::string value;    // as written, shortened
  std::string fate;     // setting | derived | ignored | replaced | error | unread (the error came before it)
  std::string outcome;  // "train.optimizer.params.lr = 3e-05", or why
};

struct Explanation {
  std::string source;                // the file, "" = flags only
  std::string form;                  // "ModelScope settings"
  std::vector<ExplainedLine> lines;  // in file order
  std::vector<std::string> command_line, defaults, layout, notices;
  std::string error;  // "" = the settings are good
  int exit_code = 0;
};

// Loads as load_config does, but an Error ends in the explanation.
Explanation explain_settings(const CommandLine& command_line, int64_t world_size);

std::string explanation_text(const Explanation& explanation);
std::string explanation_json(const Explanation& explanation);

}  // namespace plait
