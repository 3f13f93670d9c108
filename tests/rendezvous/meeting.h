// A job that meets over loopback: rank 0's server, and each rank's client in a thread of its own.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <mutex>

#include "plait/base/error.h"
#include "plait/rendezvous/client.h"
#include "plait/rendezvous/server.h"

namespace plait::rendezvous {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLong{30000};

// How a rank's joining ended.
struct End {
  ExitCode code = ExitCode::kOk;
  std::string text;
};

class Meeting : public ::testing::Test {
 protected:
  // Rank 0's server; `change` may alter what it says and expects.
  void start(int64_t world_size, const std::function<void(Server::Options&)>& change = nullptr) {
    here_ = 0;
    Server::Options options;
    options.service.self = Hello::of_this_process(0, world_size);
    options.service.self.host = "node0";
    options.service.self.pid = 100;
    options.service.self.job_id = "A";
    options.service.secret = "the secret";
    options.service.hello_time = milliseconds(1000);
    options.service.line_time = milliseconds(200);
    options.service.say = [this](const std::string& line) {
      std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
    options.goodbye_time = options.failure_time = milliseconds(300);
    if (change) change(options);
    self_ = options.service.self;
    auto listening = listen_on({"127.0.0.1", 0, -1, "", false});
    port_ = local_address(listening.sockets[0].get()).port();
    options.service.address = address_text("127.0.0.1", port_);
    server_ = std::make_unique<Server>(std::move(listening), std::move(options));
  }

  ClientOptions client(int64_t rank, const std::function<void(ClientOptions&)>& change = nullptr) const {
    ClientOptions options;
    options.self = self_;
    if (rank != 0) {
      options.self.rank = rank;
      options.self.host = cat("node", rank);
      options.self.pid = 100 + rank;
      options.self.instance = random_bytes(16);
    }
    options.secret = "the secret";
    options.master_port = port_;
    options.timeout = kLong;
    if (change) change(options);
    return options;
  }

  // Joins in a thread of its own and stays until the job is to end.
  std::future<End> join(ClientOptions options, std::shared_future<void> stay = {}) {
    return std::async(std::launch::async, [this, options = std::move(options), stay]() -> End {
      try {
        Client one(options);
        one.gather();
        ++here_;
        if (stay.valid()) stay.wait();
        return {};
      } catch (const Error& e) {
        return {e.code(), e.what()};
      }
    });
  }

  static void expect_end(std::future<End>& end, ExitCode code, const std::string& text) {
    ASSERT_EQ(end.wait_for(std::chrono::seconds(20)), std::future_status::ready) << "still waiting; wanted: " << text;
    End got = end.get();
    EXPECT_EQ(got.code, code) << got.text;
    EXPECT_NE(got.text.find(text), std::string::npos) << "wanted: " << text << "\ngot: " << got.text;
  }

  // A line that contains `text`, soon.
  bool said(const std::string& text) {
    for (auto end = Clock::now() + milliseconds(10000); Clock::now() < end; std::this_thread::sleep_for(milliseconds(10))) {
      std::lock_guard lock(mutex_);
      for (const auto& line : lines_) {
        if (line.find(text) != std::string::npos) return true;
      }
    }
    return false;
  }

  // A contradiction of rank 1 while rank 2 waits and rank 3 is still missing: all are told the same.
  void expect_fatal(const std::function<void(ClientOptions&)>& change, const std::string& text, ExitCode code = ExitCode::kRendezvous) {
    start(4, [](Server::Options& options) { options.failure_time = milliseconds(2000); });
    auto zero = join(client(0)), two = join(client(2));
    ASSERT_TRUE(said("here: rank 0 host node0, rank 2 host node2"));
    auto one = join(client(1, change));
    expect_end(one, code, text);
    expect_end(zero, code, text);
    expect_end(two, code, text);
    auto late = join(client(3));
    expect_end(late, code, text);
    server_.reset();
  }

  // The same of a newcomer when all are here: it alone is refused.
  void expect_refused_late(const std::function<void(ClientOptions&)>& change, const std::string& text) {
    start(2);
    std::promise<void> leave;
    auto stay = leave.get_future().share();
    auto zero = join(client(0), stay), one = join(client(1), stay);
    wait_until_here(2);
    auto late = join(client(1, change));
    expect_end(late, ExitCode::kRendezvous, text);
    leave.set_value();
    expect_end(zero, ExitCode::kOk, "");
    expect_end(one, ExitCode::kOk, "");
    server_.reset();
  }

  void wait_until_here(int count) {
    for (auto end = Clock::now() + kLong; here_ < count && Clock::now() < end;) std::this_thread::sleep_for(milliseconds(5));
    ASSERT_EQ(here_, count);
  }

  Hello self_;
  int port_ = 0;
  std::unique_ptr<Server> server_;
  std::atomic<int> here_{0};
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace plait::rendezvous
