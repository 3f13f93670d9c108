#include "plait/elastic/worker_command.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace plait {

namespace {

bool is_program(const std::string& path) {
  std::error_code none;
  return std::filesystem::is_regular_file(path, none) && ::access(path.c_str(), X_OK) == 0;
}

// As execvp would find it; "" when it would not.
std::string find_in_path(const std::string& name) {
  if (name.find('/') != std::string::npos) return is_program(name) ? name : "";
  const char* path = std::getenv("PATH");
  std::string folders = path ? path : "/usr/local/bin:/usr/bin:/bin";
  for (size_t begin = 0; begin <= folders.size();) {
    size_t end = std::min(folders.find(':', begin), folders.size());
    std::string folder = folders.substr(begin, end - begin);
    std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (is_program(candidate)) return candidate;
    begin = end + 1;
  }
  return "";
}

std::string own_program() {
  std::error_code none;
  return std::filesystem::read_symlink("/proc/self/exe", none).string();
}

void hand_on(int fd) {
  if (fd >= 0) ::fcntl(fd, F_SETFD, 0);
}

// A file in memory: unlike a pipe it needs nobody to write, and it ends with the processes that hold it.
int secret_descriptor(const std::string& secret) {
  int fd = ::memfd_create("plait_secret", 0);
  if (fd < 0 || ::write(fd, secret.data(), secret.size()) != static_cast<ssize_t>(secret.size()) || ::lseek(fd, 0, SEEK_SET) != 0)
    throw_error(ExitCode::kResource, "no descriptor for the secret of the job: ", std::strerror(errno));
  return fd;
}

}  // namespace

WorkerCommand find_worker_command(const std::vector<std::string>& given, bool module, bool no_python) {
  std::vector<std::string> words = given;
  PLAIT_CHECK(!words.empty());
  if (module && no_python) throw_error(ExitCode::kUsage, "--module and --no_python exclude each other: a module is run by python3");
  if (module) words.insert(words.begin(), {"python3", "-u", "-m"});
  else if (!no_python && words[0].ends_with(".py")) {
    if (!std::filesystem::exists(words[0])) throw_error(ExitCode::kUsage, words[0], ": no such file");
    words.insert(words.begin(), {"python3", "-u"});
  }
  WorkerCommand command{find_in_path(words[0]), words};
  if (command.path.empty() && words[0] == "plait") command.path = own_program();
  if (command.path.empty()) {
    const bool is_file = std::filesystem::exists(words[0]);
    throw_error(ExitCode::kUsage, words[0],
                is_file ? ": is not an executable file (chmod +x, or name its interpreter first)" : ": no such program",
                words[0].find('/') == std::string::npos && !is_file ? " in PATH" : "");
  }
  return command;
}

std::vector<std::pair<std::string, std::string>> worker_variables(const RankEnvironment& env) {
  std::vector<std::pair<std::string, std::string>> variables = {{"RANK", cat(env.rank)},
                                                                {"LOCAL_RANK", cat(env.local_rank)},
                                                                {"WORLD_SIZE", cat(env.world_size)},
                                                                {"LOCAL_WORLD_SIZE", cat(env.local_world_size)},
                                                                {"GROUP_RANK", cat(env.node_rank)},
                                                                {"MASTER_ADDR", env.master_addr},
                                                                {"MASTER_PORT", cat(env.master_port)},
                                                                {"PLAIT_LAUNCHER", env.launcher},
                                                                {"PLAIT_RESTART_COUNT", cat(env.restart_count)}};
  const int64_t seconds = std::chrono::ceil<std::chrono::seconds>(env.rendezvous_timeout).count();
  variables.emplace_back("PLAIT_RDZV_TIMEOUT", cat(seconds));
  if (!env.job_id.empty()) variables.emplace_back("PLAIT_JOB_ID", env.job_id);
  if (!env.bind.empty()) variables.emplace_back("PLAIT_BIND", env.bind);
  if (env.listen_fd >= 0) variables.emplace_back("PLAIT_LISTEN_FD", cat(env.listen_fd));
  if (env.status_fd >= 0) variables.emplace_back("PLAIT_STATUS_FD", cat(env.status_fd));
  if (env.launcher_fd >= 0) variables.emplace_back("PLAIT_LAUNCHER_FD", cat(env.launcher_fd));
  return variables;
}

void become_worker(const WorkerCommand& command, const RankEnvironment& env) {
  // Of an outer launcher, or of the user for the launcher.
  for (const char* name :
       {"TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID", "NODE_RANK", "PLAIT_SECRET_FILE",
        "PLAIT_SECRET_FD", "PLAIT_LISTEN_FD", "PLAIT_STATUS_FD", "PLAIT_LAUNCHER_FD", "PLAIT_JOB_ID", "PLAIT_BIND"})
    ::unsetenv(name);
  for (const auto& [name, value] : worker_variables(env)) ::setenv(name.c_str(), value.c_str(), 1);
  for (int fd : {env.listen_fd, env.status_fd, env.launcher_fd}) hand_on(fd);
  if (!env.secret.empty()) ::setenv("PLAIT_SECRET_FD", cat(secret_descriptor(env.secret)).c_str(), 1);
  std::vector<char*> argv;
  for (const std::string& word : command.words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execv(command.path.c_str(), argv.data());
  throw_error(ExitCode::kUsage, command.path, " cannot be executed: ", std::strerror(errno));
}

}  // namespace plait
