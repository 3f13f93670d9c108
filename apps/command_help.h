// What the sub-commands say about themselves, as data: `plait help`, `plait <command> --help`, the shell completions (`plait completion`)
// and the manual page (`plait man`) are all made from it, so none of them can differ from the others.
// Each command file defines one CommandHelp and is listed once, in apps/plait.cpp. Plain values, no state.
#pragma once

#include <string>
#include <vector>

namespace plait {

struct FlagHelp {
  std::string name;    // "--model"; without dashes for an argument of its place ("CONFIG")
  std::string value;   // what follows it: "FILE", "DIR", "N", "a.b=c", or its words, "bash | zsh | fish"; empty = nothing follows
  std::string effect;  // one line
};

struct CommandHelp {
  std::string name;                // "train"
  std::string summary;             // one line, no full stop
  std::vector<std::string> usage;  // "train [CONFIG] [--flag value ...]", without "plait"
  std::string description;         // whole sentences; a blank line parts paragraphs
  std::vector<FlagHelp> flags;
  bool takes_settings = false;  // every setting is a flag too, and --set a.b=c
};

// In the order of the table in apps/plait.cpp.
std::vector<CommandHelp> all_command_help();

// `plait <command> --help`.
std::string help_text(const CommandHelp& help);

// `text` in lines of at most `width` characters, each after `indent` spaces; paragraphs stay apart.
std::string wrapped(const std::string& text, size_t indent, size_t width);

// A setting as the completions and the manual page show it.
struct SettingHelp {
  std::string name, effect, unit, default_value;
  std::vector<std::string> values;  // its words, where it takes only these
  bool is_path = false;
};
std::vector<SettingHelp> all_setting_help();

// Flags without dashes that stand for a setting by a short or Hugging Face name: "lr", "batch_size", "learning_rate". Sorted.
std::vector<std::string> setting_flags();

// The words of "a | b | c", or nothing when `value` names a kind of value.
std::vector<std::string> value_words(const std::string& value);

// "bash" | "zsh" | "fish": a script for that shell. Error(kUsage) for another word.
std::string completion_script(const std::string& shell, const std::vector<CommandHelp>& commands);

// The manual page in roff (man macros).
std::string manual_page(const std::vector<CommandHelp>& commands, const std::string& version);

}  // namespace plait
