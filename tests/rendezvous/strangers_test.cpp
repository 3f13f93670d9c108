// What else may happen to a port: floods, garbage, silence and frames of 16 GiB against the server, other programs against the client.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "tests/rendezvous/meeting.h"

namespace plait::rendezvous {
namespace {

// A bare connection to a port of 127.0.0.1.
class Stranger {
 public:
  explicit Stranger(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    timeval limit{20, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  bool connected() const { return connected_; }
  bool say(std::string_view bytes) const {
    return ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  bool has_heard() const {
    pollfd watched{fd_.get(), POLLIN, 0};
    return ::poll(&watched, 1, 0) > 0;
  }
  // True: the server ended the connection, within the socket's time limit.
  bool is_dropped() const {
    char bytes[4096];
    while (true) {
      ssize_t n = ::recv(fd_.get(), bytes, sizeof bytes, 0);
      if (n == 0 || (n < 0 && errno == ECONNRESET)) return true;
      if (n < 0) return false;
    }
  }

 private:
  FileDescriptor fd_;
  bool connected_ = false;
};

size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

class Strangers : public Meeting {
 protected:
  void expect_the_job_meets() {
    auto zero = join(client(0)), one = join(client(1));
    expect_end(zero, ExitCode::kOk, "");
    expect_end(one, ExitCode::kOk, "");
  }
};

TEST_F(Strangers, GarbageIsDroppedAtOnce) {
  start(2, [](Server::Options& options) { options.service.hello_time = milliseconds(60000); });
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    Stranger stranger(port_);
    std::string bytes(1 + random() % 3000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    bytes[0] = '\x16';  // never the preamble
    stranger.say(bytes);
    EXPECT_TRUE(stranger.is_dropped());
  }
  for (const char* text : {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "PLAIT-RENDEZVOUS 9\r\n\r\n"}) {
    Stranger stranger(port_);
    stranger.say(text);
    EXPECT_TRUE(stranger.is_dropped());
  }
  expect_the_job_meets();
}

TEST_F(Strangers, FramesThatLieAboutTheirLength) {
  start(2, [](Server::Options& options) { options.service.hello_time = milliseconds(60000); });
  size_t before = resident_bytes();
  for (uint64_t length : {uint64_t{16} << 30, ~uint64_t{0}, uint64_t{kMostHelloBytes} + 1}) {
    std::string header;
    for (int i = 0; i < 8; ++i) header.push_back(static_cast<char>(length >> (8 * i)));
    Stranger stranger(port_);
    stranger.say(std::string(kPreamble) + header);
    EXPECT_TRUE(stranger.is_dropped()) << length;
  }
  EXPECT_LT(resident_bytes(), before + (size_t{64} << 20));
  expect_the_job_meets();
}

// Nobody who has not proved who he is holds a connection for long, be he silent or slow.
TEST_F(Strangers, SilentAndSlowOnes) {
  start(2, [](Server::Options& options) { options.service.hello_time = milliseconds(600); });
  Stranger silent(port_), slow(port_);
  std::string hello = std::string(kPreamble) + std::string("\x00\x10\x00\x00\x00\x00\x00\x00", 8);
  slow.say(hello.substr(0, 10));
  std::atomic<bool> stop{false};
  std::thread drip([&] {
    for (size_t i = 10; i < 500 && !stop; ++i) {
      slow.say(i < hello.size() ? hello.substr(i, 1) : std::string("x"));
      std::this_thread::sleep_for(milliseconds(20));
    }
  });
  EXPECT_TRUE(silent.is_dropped());
  EXPECT_TRUE(slow.is_dropped());
  stop = true;
  drip.join();
  expect_the_job_meets();
}

TEST_F(Strangers, AFloodDoesNotStopTheJob) {
  start(8, [](Server::Options& options) {
    options.service.most_strangers = 32;
    options.service.hello_time = milliseconds(60000);
  });
  std::atomic<bool> stop{false};
  std::atomic<int> count{0};
  std::thread flood([&] {
    std::vector<std::unique_ptr<Stranger>> held;
    while (!stop) {
      held.push_back(std::make_unique<Stranger>(port_));
      if (count % 3 == 1) held.back()->say("GET /");
      if (count % 3 == 2) held.back()->say(kPreamble);
      if (held.size() > 300) held.erase(held.begin());
      ++count;
    }
  });
  while (count < 200) std::this_thread::sleep_for(milliseconds(1));
  std::vector<std::future<End>> ends;
  for (int64_t rank = 0; rank < 8; ++rank) ends.push_back(join(client(rank)));
  for (auto& end : ends) expect_end(end, ExitCode::kOk, "");
  stop = true;
  flood.join();
}

TEST_F(Strangers, SomeMakeRoom) {
  start(2, [](Server::Options& options) {
    options.service.most_strangers = 12;  // and 8 for the two ranks
    options.service.hello_time = milliseconds(60000);
  });
  std::vector<std::unique_ptr<Stranger>> held;
  for (int i = 0; i < 30; ++i) held.push_back(std::make_unique<Stranger>(port_));
  long count = 0;
  for (auto end = Clock::now() + milliseconds(10000); count < 10 && Clock::now() < end; std::this_thread::sleep_for(milliseconds(10)))
    count = std::count_if(held.begin(), held.end(), [](const auto& stranger) { return stranger->has_heard(); });
  EXPECT_EQ(count, 10);
  expect_the_job_meets();
}

// Out of descriptors the server neither ends nor spins; when some are free again the job meets.
TEST_F(Strangers, NoDescriptorsLeft) {
  start(2);
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  std::vector<std::unique_ptr<Stranger>> held;
  rlimit few{200, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &few);
  for (int i = 0; i < 150; ++i) held.push_back(std::make_unique<Stranger>(port_));
  std::this_thread::sleep_for(milliseconds(300));
  held.clear();
  ::setrlimit(RLIMIT_NOFILE, &before);
  expect_the_job_meets();
}

TEST_F(Strangers, RequestsWithoutAHello) {
  start(2);
  Stranger stranger(port_);
  stranger.say(std::string(kPreamble) + to_frame(Request{RequestKind::kSet, {"key"}, "value", "", "", 0, {}}));
  EXPECT_TRUE(stranger.is_dropped());
  // A proof that was seen once is no proof for another connection: the nonce is another one.
  Stranger again(port_);
  std::string hello = encode(client(1).self);
  again.say(std::string(kPreamble) + to_frame(Request{RequestKind::kHello, {}, hello, random_bytes(kNonceBytes), random_bytes(32), 0, {}}));
  EXPECT_TRUE(again.is_dropped());
  expect_the_job_meets();
}

// A program of another kind on the port: says `words` to each comer after it has heard something, and closes, or stays silent.
class OtherProgram {
 public:
  explicit OtherProgram(std::string words, bool closes = true) : listening_(listen_on({"127.0.0.1", 0, -1, "", false})) {
    port = local_address(listening_.sockets[0].get()).port();
    thread_ = std::thread([this, words, closes] {
      std::vector<FileDescriptor> held;
      while (!stop_) {
        FileDescriptor fd(::accept(listening_.sockets[0].get(), nullptr, nullptr));
        if (!fd.is_open()) {
          std::this_thread::sleep_for(milliseconds(5));
          continue;
        }
        char heard[4096];
        if (closes) [[maybe_unused]]
          auto n = ::recv(fd.get(), heard, sizeof heard, 0);
        [[maybe_unused]] auto sent = ::send(fd.get(), words.data(), words.size(), MSG_NOSIGNAL);
        if (!closes) held.push_back(std::move(fd));
      }
    });
  }
  ~OtherProgram() {
    stop_ = true;
    thread_.join();
  }
  int port = 0;

 private:
  Listening listening_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class OtherPrograms : public Meeting {
 protected:
  std::future<End> join_at(int port, milliseconds timeout = kLong) {
    return join(client(1, [&](ClientOptions& o) {
      o.self.rank = 1;
      o.master_port = port;
      o.timeout = timeout;
      o.line_time = milliseconds(200);
      o.say = [this](const std::string& line) {
        std::lock_guard lock(mutex_);
        lines_.push_back(line);
      };
    }));
  }
};

TEST_F(OtherPrograms, AWebServer) {
  OtherProgram web("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
  auto end = join_at(web.port);
  expect_end(
      end, ExitCode::kRendezvous,
      cat("something else than plait answers at 127.0.0.1:", web.port, ": \"HTTP/1.1 400 Bad Request\"; give the job a master_port"));
}

// As torch's TCPStore does with a first byte that it does not know.
TEST_F(OtherPrograms, OneThatClosesAtOnce) {
  OtherProgram store("");
  auto end = join_at(store.port);
  expect_end(end, ExitCode::kRendezvous, "closes the connection without plait's greeting: another program (a torch store?) has this port");
}

TEST_F(OtherPrograms, OneThatSaysNothing) {
  OtherProgram silent("", false);
  auto end = join_at(silent.port, milliseconds(2500));
  EXPECT_TRUE(said(cat("waits for rank 0 at 127.0.0.1:", silent.port)));
  expect_end(end, ExitCode::kRendezvous, "is connected, but does not answer: rank 0 is still starting, or another program listens there");
}

// It can listen, but does not know the secret.
TEST_F(OtherPrograms, AServerWithoutTheSecret) {
  Reply challenge{ReplyKind::kChallenge, kProtocolVersion, std::string(kNonceBytes, 'n')},
      welcome{ReplyKind::kWelcome, 0, std::string(32, 'p')};
  OtherProgram impostor(to_frame(challenge) + to_frame(welcome), false);
  auto end = join_at(impostor.port);
  expect_end(end, ExitCode::kAuth, "cannot prove that it knows the secret of this job");
}

TEST_F(OtherPrograms, NobodyAtAllIsSaidEveryTime) {
  int port = OtherProgram("").port;
  auto end = join_at(port, milliseconds(1500));
  EXPECT_TRUE(said(cat("rank 1 waits for rank 0 at 127.0.0.1:", port, " (0 s): 127.0.0.1:", port, ": Connection refused")));
  expect_end(end, ExitCode::kRendezvous, cat("rank 1 (host node1, pid 101) found no rank 0 at 127.0.0.1:", port, " within 1500 ms"));
}

}  // namespace
}  // namespace plait::rendezvous
