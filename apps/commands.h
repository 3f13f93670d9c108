// The sub-commands of `plait`. Each takes argc and argv as main() would, argv[0] being the command's own name, and returns the
// exit code; a user's mistake is a thrown plait::Error, which main() prints. Thread rule: called once, from the main thread.
// Beside each stands what it says about itself (apps/command_help.h). A new command is two lines here and one in apps/plait.cpp.
#pragma once

namespace plait {

struct CommandHelp;

int train_command(int argc, char** argv);
CommandHelp train_help();
int eval_command(int argc, char** argv);
CommandHelp eval_help();
int predict_command(int argc, char** argv);
CommandHelp predict_help();
int launch_command(int argc, char** argv);
CommandHelp launch_help();
int explain_command(int argc, char** argv);
CommandHelp explain_help();
int schedule_command(int argc, char** argv);
CommandHelp schedule_help();
int doctor_command(int argc, char** argv);
CommandHelp doctor_help();
int completion_command(int argc, char** argv);
CommandHelp completion_help();
int man_command(int argc, char** argv);
CommandHelp man_help();

}  // namespace plait
