// `plait completion bash | zsh | fish`: the commands, their flags and the names of all settings, written into a script for that shell.
#include <algorithm>
#include <iostream>

#include "apps/command_help.h"
#include "apps/commands.h"
#include "plait/base/error.h"

namespace plait {

namespace {

bool is_flag(const FlagHelp& flag) { return flag.name[0] == '-'; }

// 'text' for a shell, whatever is in it.
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string flag_words(const CommandHelp& command) {
  std::vector<std::string> words;
  for (const auto& flag : command.flags)
    if (is_flag(flag)) words.push_back(flag.name);
  words.push_back("--help");
  return join(words, " ");
}

// What a shell does to complete a value of each kind; `words` stands before the words themselves.
struct ShellActions {
  std::string files, folders, settings, words;
  bool quote_words = true;
};

// "train:--task) words ;;" for each flag that a value follows: what completes the value.
std::string value_cases(const CommandHelp& command, const ShellActions& shell) {
  std::string out;
  for (const auto& flag : command.flags) {
    if (!is_flag(flag) || flag.value.empty()) continue;
    auto known = value_words(flag.value);
    std::string list = join(known, " "), action = known.empty() ? ":" : shell.words + (shell.quote_words ? shell_quoted(list) : list);
    if (flag.value.rfind("FILE", 0) == 0) action = shell.files;
    else if (flag.value.rfind("DIR", 0) == 0) action = shell.folders;
    else if (flag.name == "--set") action = shell.settings;
    out += cat("        ", command.name, ":", flag.name, ") ", action, " ;;\n");
  }
  return out;
}

std::string setting_value_cases(const std::string& words) {
  std::string out;
  for (const auto& setting : all_setting_help())
    if (!setting.values.empty()) out += cat("    ", setting.name, ") ", words, shell_quoted(join(setting.values, " ")), " ;;\n");
  return out;
}

std::string setting_names() {
  std::vector<std::string> names;
  for (const auto& setting : all_setting_help()) names.push_back(setting.name);
  return join(names, " ");
}

std::string dashed_setting_flags() {
  std::vector<std::string> flags;
  for (const auto& flag : setting_flags()) flags.push_back("--" + flag);
  return join(flags, " ");
}

std::string command_names(const std::vector<CommandHelp>& commands) {
  std::vector<std::string> names;
  for (const auto& command : commands) names.push_back(command.name);
  return join(names, " ");
}

// One "name) flags ;;" a command.
std::string flag_cases(const std::vector<CommandHelp>& commands, const std::string& assign, const std::string& more) {
  std::string out;
  for (const auto& command : commands)
    out += cat("    ", command.name, ") ", assign, shell_quoted(flag_words(command)), command.takes_settings ? more : "", " ;;\n");
  return out;
}

std::string bash_script(const std::vector<CommandHelp>& commands) {
  std::string values;
  for (const auto& command : commands)
    values += value_cases(command, {"_plait_paths -f", "_plait_paths -d", "_plait_words \"$_plait_settings\" =", "_plait_words ", true});
  std::string positional;
  for (const auto& command : commands)
    for (const auto& flag : command.flags)
      if (!is_flag(flag)) {
        auto known = value_words(flag.value);
        positional += cat("      ", command.name, ") ",
                          known.empty() ? "_plait_paths -f" : "_plait_words " + shell_quoted(join(known, " ")), " ;;\n");
      }
  return cat("# bash completion of plait: eval \"$(plait completion bash)\"\n_plait_settings=", shell_quoted(setting_names()),
             "\n_plait_setting_flags=", shell_quoted(dashed_setting_flags()), R"(

# Words that begin as the one under the cursor; with "=" a value follows without a space.
_plait_words() {
  COMPREPLY=($(compgen -W "$1" ${2:+-S "$2"} -- "$current"))
  [ -z "${2-}" ] || compopt -o nospace 2>/dev/null
  return 0
}

_plait_paths() {
  local IFS=$'\n'
  COMPREPLY=($(compgen "$1" -- "$current"))
  compopt -o filenames 2>/dev/null
  return 0
}

_plait_setting_value() {
  case "$1" in
)",
             setting_value_cases("_plait_words "), R"(  esac
}

_plait() {
  local current=${COMP_WORDS[COMP_CWORD]} previous="" command="" flags="" previous_word="" flag="" begin=0 i
  [ "$COMP_CWORD" -gt 0 ] && previous=${COMP_WORDS[COMP_CWORD-1]}
  COMPREPLY=()
  # `plait launch ... -- plait train ...`: the words behind "--" are a command line of their own.
  for ((i = 1; i < COMP_CWORD; i++)); do
    if [ "${COMP_WORDS[i]}" = -- ]; then begin=$((i + 1)); fi
  done
  if [ "$begin" -gt 0 ] && [ "$COMP_CWORD" -eq "$begin" ]; then
    COMPREPLY=($(compgen -c -- "$current"))
    return
  fi
  if [ "$begin" -gt 0 ] && [ "${COMP_WORDS[begin]##*/}" != plait ]; then
    _plait_paths -f
    return
  fi
  if [ "$COMP_CWORD" -eq $((begin + 1)) ]; then
    _plait_words ')",
             command_names(commands), R"( --help --version'
    return
  fi
  command=${COMP_WORDS[begin+1]}
  # bash parts words at "=": --set NAME = VALUE, --flag = VALUE.
  if [ "$current" = = ]; then
    current="" previous_word=${COMP_WORDS[COMP_CWORD-1]} flag=${COMP_WORDS[COMP_CWORD-2]-}
  elif [ "$previous" = = ]; then
    previous_word=${COMP_WORDS[COMP_CWORD-2]} flag=${COMP_WORDS[COMP_CWORD-3]-}
  fi
  if [ -n "$previous_word" ]; then
    if [ "$flag" = --set ]; then
      _plait_setting_value "$previous_word"
      return
    fi
    previous=$previous_word
  fi
  case "$previous" in
    --*)
      case "$command:$previous" in
)",
             values, R"(        *) false ;;
      esac && return
      ;;
  esac
  if [ "${current:0:1}" != - ]; then
    case "$command" in
)",
             positional, R"(      *) _plait_paths -f ;;
    esac
    return
  fi
  case "$command" in
)",
             flag_cases(commands, "flags=", "\" $_plait_setting_flags\""), R"(    *) flags=--help ;;
  esac
  _plait_words "$flags"
}
complete -F _plait plait
)");
}

std::string zsh_description(std::string text) {
  std::string out;
  for (char c : text) out += c == ':' ? std::string("\\:") : std::string(1, c);
  return shell_quoted(out);
}

std::string zsh_script(const std::vector<CommandHelp>& commands) {
  std::string names, values, flags;
  for (const auto& command : commands) {
    names += cat("    ", shell_quoted(command.name + ":"), zsh_description(command.summary), "\n");
    values += value_cases(command, {"_files", "_files -/", "compadd -S = -- $plait_settings", "compadd -- ", false});
    flags +=
        cat("    ", command.name, ") compadd -- ", flag_words(command), command.takes_settings ? " $plait_setting_flags" : "", " ;;\n");
  }
  return cat(
      "#compdef plait\n# zsh completion of plait: plait completion zsh > a folder of $fpath, as the file _plait\n_plait() {\n"
      "  local command flag\n  local -a plait_commands plait_settings plait_setting_flags\n  plait_settings=(",
      setting_names(), ")\n  plait_setting_flags=(", dashed_setting_flags(), ")\n  plait_commands=(\n", names, R"(  )
  if (( CURRENT == 2 )); then
    _describe command plait_commands
    return
  fi
  command=$words[2] flag=$words[CURRENT-1]
  case "$command:$flag" in
)",
      values, R"(    *)
      if [[ $words[CURRENT] != -* ]]; then
        _files
        return
      fi
      case "$command" in
)",
      flags, R"(      esac
      ;;
  esac
}
if [ "$funcstack[1]" = _plait ]; then _plait "$@"; else compdef _plait plait; fi
)");
}

std::string fish_script(const std::vector<CommandHelp>& commands) {
  std::string out =
      "# fish completion of plait: plait completion fish > ~/.config/fish/completions/plait.fish\ncomplete -c plait -n "
      "__fish_use_subcommand -f\n";
  auto fish_quoted = [](const std::string& text) {
    std::string escaped = "'";
    for (char c : text) escaped += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    return escaped + "'";
  };
  for (const auto& command : commands)
    out += cat("complete -c plait -n __fish_use_subcommand -a ", command.name, " -d ", fish_quoted(command.summary), "\n");
  for (const auto& command : commands) {
    std::string at = cat("complete -c plait -n '__fish_seen_subcommand_from ", command.name, "' ");
    for (const auto& flag : command.flags) {
      if (!is_flag(flag)) continue;
      out += cat(at, "-l ", flag.name.substr(2), " -d ", fish_quoted(flag.effect));
      auto known = value_words(flag.value);
      if (!known.empty()) out += cat(" -x -a ", fish_quoted(join(known, " ")));
      else if (flag.name == "--set") out += " -x -a \"$__plait_settings\"";
      else if (!flag.value.empty()) out += " -r";
      out += "\n";
    }
    if (command.takes_settings) out += cat(at, "-a \"$__plait_setting_flags\"\n");
  }
  std::string settings;
  for (const auto& setting : all_setting_help()) settings += " " + setting.name + "=";
  return cat("set -g __plait_settings", settings, "\nset -g __plait_setting_flags ", dashed_setting_flags(), "\n", out);
}

}  // namespace

std::string completion_script(const std::string& shell, const std::vector<CommandHelp>& commands) {
  if (shell == "bash") return bash_script(commands);
  if (shell == "zsh") return zsh_script(commands);
  if (shell == "fish") return fish_script(commands);
  throw_error(ExitCode::kUsage, "completion ", shell, ": known shells are bash, zsh and fish");
}

CommandHelp completion_help() {
  return {
      "completion",
      "print the completion script of a shell",
      {"completion bash | zsh | fish"},
      "Prints a script that completes commands, flags and the names of settings. For bash: eval \"$(plait completion bash)\" in ~/.bashrc.",
      {{"SHELL", "bash | zsh | fish", "the shell"}}};
}

int completion_command(int argc, char** argv) {
  std::string word = argc == 2 ? argv[1] : "";
  if (word == "--help" || word == "-h") std::cout << help_text(completion_help());
  else if (word.empty()) throw_error(ExitCode::kUsage, "completion takes one word, the shell: bash, zsh or fish");
  else std::cout << completion_script(word, all_command_help());
  return 0;
}

}  // namespace plait
