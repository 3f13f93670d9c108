// `plait man`: the manual page, from the commands' own help and the table of settings.
#include <iostream>

#include "apps/command_help.h"
#include "apps/commands.h"
#include "plait/base/error.h"

namespace plait {

namespace {

// Text as roff reads it: no escapes or hyphens by accident, no request at the begin of a line.
std::string roff(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '\\') out += "\\e";
    else if (c == '-') out += "\\-";
    else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += std::string("\\&") + c;
    else out += c;
  }
  return out;
}

std::string paragraphs(const std::string& text) {
  std::string out;
  bool empty_line = false;
  std::string lines = wrapped(text, 0, 100);
  for (size_t at = 0; at < lines.size();) {
    size_t end = std::min(lines.find('\n', at), lines.size());
    std::string line = lines.substr(at, end - at);
    if (line.empty()) empty_line = true;
    else {
      out += cat(empty_line ? ".PP\n" : "", roff(line), "\n");
      empty_line = false;
    }
    at = end + 1;
  }
  return out;
}

// An italic piece, unless it is empty: roff warns about fonts without text.
std::string italic(const std::string& text) { return text.empty() ? "" : cat(" \\fI", roff(text), "\\fP"); }

std::string command_section(const CommandHelp& command) {
  std::string out = cat(".SS ", roff(command.name), "\n", paragraphs(command.description));
  for (const auto& form : command.usage) out += cat(".PP\n\\fBplait\\fP ", roff(form), "\n");
  for (const auto& flag : command.flags)
    out += cat(".TP\n\\fB", roff(flag.name), "\\fP", flag.name[0] == '-' ? italic(flag.value) : "", "\n", paragraphs(flag.effect));
  if (command.takes_settings)
    out +=
        ".PP\nEvery setting (see SETTINGS) is a flag too: by its dotted name, or by the last part of it where only one setting has that.\n";
  return out;
}

std::string settings_section() {
  std::string out = ".SH SETTINGS\nOf a settings file, as flags, or as \\fB\\-\\-set\\fP \\fIname=value\\fP.\n";
  for (const auto& setting : all_setting_help()) {
    std::string facts = setting.effect;
    if (!setting.values.empty()) facts += cat(". Values: ", join(setting.values));
    if (!setting.default_value.empty()) facts += cat(". Default: ", setting.default_value, setting.unit.empty() ? "" : " ", setting.unit);
    else if (!setting.unit.empty()) facts += cat(". Unit: ", setting.unit);
    out += cat(".TP\n\\fB", roff(setting.name), "\\fP\n", paragraphs(facts + "."));
  }
  return out;
}

constexpr std::pair<const char*, const char*> kExitCodes[] = {
    {"0", "done"},
    {"1", "a bug of plait"},
    {"2", "usage: flags, settings, a layout that does not fit, a work_dir that cannot be written"},
    {"3", "rows of data files"},
    {"4", "a model or checkpoint folder is corrupt, incomplete or does not fit"},
    {"5", "rendezvous: a port in use, ranks that never came, jobs that were mixed"},
    {"6", "a rank was lost"},
    {"7", "a collective took longer than train.comm_timeout_seconds"},
    {"8", "disk, memory, descriptors, or a device that is not there"},
    {"9", "NaN or infinity where a finite number is needed"},
    {"10", "all restarts are used up"},
    {"11", "the work_dir is in use by another run"},
    {"12", "the secret of the job is wrong"},
    {"75", "stopped from outside, checkpoint saved"},
    {"130", "interrupted (SIGINT); 143 by SIGTERM"},
};

}  // namespace

std::string manual_page(const std::vector<CommandHelp>& commands, const std::string& version) {
  std::string out =
      cat(".\\\" Made by `plait man`.\n.TH PLAIT 1 \"\" \"plait ", roff(version), "\" \"User Commands\"\n.SH NAME\nplait \\- ",
          "hybrid\\-parallel training of transformer models\n.SH SYNOPSIS\n\\fBplait\\fP \\fIcommand\\fP [\\fIflags\\fP]\n",
          ".SH DESCRIPTION\n",
          paragraphs("Trains transformer models with data x tensor x pipeline parallelism, from one process to many nodes. Every "
                     "layout computes what one process computes, or is refused at start."),
          ".SH COMMANDS\n");
  for (const auto& command : commands) out += command_section(command);
  out += settings_section();
  out += ".SH \"EXIT STATUS\"\n";
  for (const auto& [code, meaning] : kExitCodes) out += cat(".TP\n\\fB", code, "\\fP\n", paragraphs(meaning));
  return out + ".SH FILES\n.TP\n\\fIwork_dir\\fP\n" +
         paragraphs("What a run writes: metrics.jsonl, logs, output, output_best, config.resolved.yaml.") +
         ".SH \"SEE ALSO\"\nThe documentation: docs/ of the source.\n";
}

CommandHelp man_help() {
  return {"man", "print the manual page", {"man"}, "Prints the manual page in roff. To read it: plait man | man -l -", {}};
}

int man_command(int argc, char** argv) {
  std::string word = argc > 1 ? argv[1] : "";
  if (word == "--help" || word == "-h") std::cout << help_text(man_help());
  else if (!word.empty()) throw_error(ExitCode::kUsage, "man takes no arguments, so not '", word, "'");
  else std::cout << manual_page(all_command_help(), PLAIT_VERSION);
  return 0;
}

}  // namespace plait
