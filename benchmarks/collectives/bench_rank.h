// One rank of the collectives benchmark: connects to the runner's socket, says who it is, then does what the runner asks, line by line.
// While another backend is measured it sleeps in read(). No torch, no MPI: both programs of this folder use it.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>

namespace bench {

// What a backend can do, on two buffers of floats of its own. n: floats of the whole tensor (all_gather: output, reduce_scatter: input).
class Backend {
 public:
  virtual ~Backend() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void resize(int64_t n) = 0;          // both buffers hold n floats now
  virtual float* first() = 0;                  // inputs, and outputs of operations in place
  virtual float* second() = 0;                 // outputs; a ring's receive
  virtual void all_reduce(int64_t n) = 0;      // first[0, n)
  virtual void all_gather(int64_t n) = 0;      // first[0, n / size) of all -> second[0, n)
  virtual void reduce_scatter(int64_t n) = 0;  // first[0, n) of all -> second[0, n / size)
  virtual void broadcast(int64_t n) = 0;       // first[0, n) of rank 0
  virtual void ring(int64_t n) = 0;            // first[0, n) to the next rank, second[0, n) from the one before
  virtual void barrier() = 0;
  virtual void upload() {}  // the buffers' values, set or read by the host, where they lie on a device
  virtual void download() {}
};

inline void run(Backend& backend, const std::string& operation, int64_t n) {
  if (operation == "all_reduce") backend.all_reduce(n);
  else if (operation == "all_gather") backend.all_gather(n);
  else if (operation == "reduce_scatter") backend.reduce_scatter(n);
  else if (operation == "broadcast") backend.broadcast(n);
  else if (operation == "ring") backend.ring(n);
  else if (operation == "barrier") backend.barrier();
  else throw std::runtime_error("unknown operation " + operation);
}

inline float value_of(int rank, int64_t index) { return static_cast<float>(rank + index % 7); }

inline void expect(const std::string& operation, const float* got, int64_t n, int64_t first_index, float from_rank, float times) {
  for (int64_t i = 0; i < n; ++i) {
    const float want = from_rank + times * static_cast<float>((first_index + i) % 7);
    if (got[i] != want)
      throw std::runtime_error(operation + ": element " + std::to_string(i) + " is " + std::to_string(got[i]) + " instead of " +
                               std::to_string(want));
  }
}

// One call whose result is looked at.
inline void check(Backend& backend, const std::string& operation, int64_t n) {
  const int rank = backend.rank(), size = backend.size();
  for (int64_t i = 0; i < n; ++i) {
    backend.first()[i] = value_of(rank, i);
    backend.second()[i] = -1;
  }
  backend.upload();
  run(backend, operation, n);
  backend.download();
  const float *first = backend.first(), *second = backend.second();
  const auto all = static_cast<float>(size), sum = all * (all - 1) / 2;
  const int64_t part = n / size;
  if (operation == "all_reduce") expect(operation, first, n, 0, sum, all);
  if (operation == "reduce_scatter") expect(operation, second, part, rank * part, sum, all);
  if (operation == "broadcast") expect(operation, first, n, 0, 0, 1);
  if (operation == "ring") expect(operation, second, n, 0, static_cast<float>((rank + size - 1) % size), 1);
  for (int r = 0; r < size && operation == "all_gather"; ++r) expect(operation, second + r * part, part, 0, static_cast<float>(r), 1);
}

class Control {
 public:
  Control(const std::string& path, const std::string& backend, int rank) : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "%s", path.c_str());
    if (socket_ < 0 || ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("the runner cannot be reached at " + path);
    say(backend + " " + std::to_string(rank));
  }
  ~Control() { ::close(socket_); }
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  void say(std::string line) {
    line += '\n';
    if (::send(socket_, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()))
      throw std::runtime_error("the runner is gone");
  }

  // "" when the runner is gone.
  std::string next_line() {
    std::string line;
    for (char letter = 0; ::read(socket_, &letter, 1) == 1 && letter != '\n';) line += letter;
    return line;
  }

 private:
  int socket_;
};

// "resize BYTES" | "check OPERATION BYTES" | "time OPERATION BYTES CALLS" | "end"; the answer is a number of seconds or "error ...".
inline void serve(Backend& backend, Control& control) {
  while (true) {
    std::istringstream words(control.next_line());
    std::string verb, operation;
    int64_t bytes = 0, calls = 1;
    words >> verb;
    if (verb.empty() || verb == "end") return;
    if (verb != "resize") words >> operation;
    words >> bytes >> calls;
    const int64_t n = bytes / static_cast<int64_t>(sizeof(float));
    try {
      if (verb == "resize") backend.resize(n);
      if (verb == "check") check(backend, operation, n);
      if (verb == "time") {
        std::memset(backend.first(), 0, static_cast<size_t>(n) * sizeof(float));  // sums that stay what they are
        backend.upload();
      }
      backend.barrier();
      const auto begin = std::chrono::steady_clock::now();
      for (int64_t call = 0; verb == "time" && call < calls; ++call) run(backend, operation, n);
      if (verb == "time") backend.download();
      control.say(std::to_string(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()));
    } catch (const std::exception& error) {
      std::string text = error.what();
      for (char& letter : text)
        if (letter == '\n') letter = ' ';
      control.say("error " + text);
    }
  }
}

}  // namespace bench
