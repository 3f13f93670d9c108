// The sub-commands of `plait`. Each takes argc and argv as main() would, argv[0] being the command's own name, and returns the
// exit code; a user's mistake is a thrown plait::Error, which main() prints. Thread rule: called once, from the main thread.
#pragma once

namespace plait {

int train_command(int argc, char** argv);
int eval_command(int argc, char** argv);
int predict_command(int argc, char** argv);
int schedule_command(int argc, char** argv);

}  // namespace plait
