#include "plait/elastic/master_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "plait/base/error.h"

namespace plait {
namespace {

std::string refused(const std::string& address, int port) {
  try {
    bind_master_socket(address, port);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kRendezvous);
    return error.what();
  }
  return "no error";
}

TEST(MasterSocket, AnyFreePortOfEitherFamily) {
  for (const char* address : {"127.0.0.1", "localhost", "::1", "[::1]"}) {
    MasterSocket socket = bind_master_socket(address, 0);
    EXPECT_GT(socket.port, 0) << address;
    int listening = -1;
    socklen_t size = sizeof listening;
    ASSERT_EQ(::getsockopt(socket.fd.get(), SOL_SOCKET, SO_ACCEPTCONN, &listening, &size), 0);
    EXPECT_EQ(listening, 0) << "whoever connects before rank 0 listens must be refused, not kept waiting";
    EXPECT_EQ(::listen(socket.fd.get(), 8), 0);
  }
}

TEST(MasterSocket, RefusalsNameTheEndpoint) {
  MasterSocket taken = bind_master_socket("127.0.0.1", 0);
  ASSERT_EQ(::listen(taken.fd.get(), 8), 0);
  EXPECT_NE(refused("127.0.0.1", taken.port).find(cat("cannot listen on 127.0.0.1:", taken.port, ": Address already in use")),
            std::string::npos);
  EXPECT_NE(refused("192.0.2.1", 29500).find("cannot listen on 192.0.2.1:29500"), std::string::npos);
  EXPECT_NE(refused("[2001:db8::1]", 29500).find("cannot listen on [2001:db8::1]:29500"), std::string::npos);
  EXPECT_NE(refused("no such host", 29500).find("cannot listen on no such host:29500"), std::string::npos);
  EXPECT_NE(refused("no such host", 29500).find("--master_addr"), std::string::npos);
}

TEST(MasterSocket, Brackets) {
  EXPECT_EQ(endpoint_text("node7", 1), "node7:1");
  EXPECT_EQ(endpoint_text("::1", 1), "[::1]:1");
  EXPECT_EQ(endpoint_text("[::1]", 1), "[::1]:1");
  EXPECT_EQ(plain_address("[fe80::2]"), "fe80::2");
  EXPECT_EQ(plain_address("10.0.0.1"), "10.0.0.1");
}

}  // namespace
}  // namespace plait
