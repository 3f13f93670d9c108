#include "plait/rendezvous/address.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "plait/base/error.h"

namespace plait::rendezvous {
namespace {

std::string refusal(const ListenOptions& options) {
  try {
    listen_on(options);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ExitCode::kRendezvous);
    return e.what();
  }
  return "listening";
}

TEST(Address, TextAndBrackets) {
  EXPECT_EQ(address_text("node7", 29500), "node7:29500");
  EXPECT_EQ(address_text("::1", 29500), "[::1]:29500");
  EXPECT_EQ(address_text("[::1]", 29500), "[::1]:29500");
  EXPECT_EQ(bare_host("[fe80::1]"), "fe80::1");
  EXPECT_EQ(bare_host("[]"), "[]");
  EXPECT_EQ(resolve("127.0.0.1", 80)[0].text(), "127.0.0.1:80");
  EXPECT_EQ(resolve("[::1]", 80)[0].text(), "[::1]:80");
  EXPECT_EQ(resolve("::1", 80)[0].text(), "[::1]:80");
}

TEST(Address, LoopbackAndAny) {
  for (const char* host : {"127.0.0.1", "127.3.4.5", "::1", "::ffff:127.0.0.1"}) EXPECT_TRUE(resolve(host, 1)[0].is_loopback()) << host;
  for (const char* host : {"10.0.0.1", "128.0.0.1", "::2", "0.0.0.0"}) EXPECT_FALSE(resolve(host, 1)[0].is_loopback()) << host;
  for (const char* host : {"0.0.0.0", "::"}) EXPECT_TRUE(resolve(host, 1)[0].is_any()) << host;
}

TEST(Address, LoopbackAsText) {
  for (const char* host : {"127.0.0.1", "127.3.4.5", "::1", "localhost"}) EXPECT_TRUE(is_loopback_host(host)) << host;
  for (const char* host : {"", "10.0.0.1", "128.0.0.1", "::2", "1270.example", "localhost.example", "node127.0"})
    EXPECT_FALSE(is_loopback_host(host)) << host;
}

TEST(Address, UnknownNames) {
  try {
    resolve("no-such-host.invalid", 1);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("the address no-such-host.invalid cannot be resolved"), std::string::npos) << e.what();
  }
}

TEST(Listen, OnTheNamedAddressOnly) {
  auto listening = listen_on({"127.0.0.1", 0, -1, "", false});
  ASSERT_EQ(listening.sockets.size(), 1u);
  EXPECT_EQ(local_address(listening.sockets[0].get()).host(), "127.0.0.1");
  auto bound = listen_on({"node7.invalid", 0, -1, "127.0.0.2", false});
  EXPECT_EQ(local_address(bound.sockets[0].get()).host(), "127.0.0.2");
  EXPECT_EQ(bound.address, "node7.invalid:0");
}

TEST(Listen, AnAddressOfAnotherMachine) {
  std::string text = refusal({"192.0.2.7", 29500, -1, "", false});
  EXPECT_NE(
      text.find("cannot listen on 192.0.2.7:29500: master_addr 192.0.2.7 is not an address of the machine of rank 0 (this machine is "),
      std::string::npos)
      << text;
  EXPECT_NE(refusal({"127.0.0.1", 29500, -1, "192.0.2.7", false}).find("bind address 192.0.2.7 is not an address"), std::string::npos);
}

// The machine's own name is often loopback in its own hosts file.
TEST(Listen, ALoopbackMasterOfSeveralMachines) {
  auto listening = listen_on({"127.0.1.1", 0, -1, "", true});
  ASSERT_FALSE(listening.sockets.empty());
  EXPECT_TRUE(local_address(listening.sockets[0].get()).is_any());
  EXPECT_NE(listening.note.find("master_addr 127.0.1.1 is a loopback address on this machine"), std::string::npos);
  EXPECT_TRUE(listen_on({"127.0.1.1", 0, -1, "127.0.1.1", true}).note.empty());
}

TEST(Listen, ABoundSocketIsTakenOver) {
  FileDescriptor bound(::socket(AF_INET, SOCK_STREAM, 0));
  auto address = resolve("127.0.0.1", 0)[0];
  ASSERT_EQ(::bind(bound.get(), address.get(), address.length), 0);
  int port = local_address(bound.get()).port();
  auto listening = listen_on({"node7", 0, ::dup(bound.get()), "", false});
  EXPECT_EQ(listening.address, cat("node7:", port));
  EXPECT_EQ(local_address(listening.sockets[0].get()).port(), port);
}

}  // namespace
}  // namespace plait::rendezvous
