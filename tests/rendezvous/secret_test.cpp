#include "plait/rendezvous/secret.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "plait/base/error.h"

namespace plait::rendezvous {
namespace {

class SecretFile : public ::testing::Test {
 protected:
  SecretFile() {
    char name[] = "/tmp/plait-secret-XXXXXX";
    if (!::mkdtemp(name)) throw std::runtime_error("no folder");
    folder_ = name;
  }
  ~SecretFile() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& text, mode_t mode = 0600) {
    std::string path = folder_ + "/secret";
    std::ofstream(path, std::ios::binary) << text;
    ::chmod(path.c_str(), mode);
    return path;
  }

  static std::string refusal(const std::string& path) {
    try {
      read_secret_file(path);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kAuth);
      return e.what();
    }
    return "accepted";
  }

  std::string folder_;
};

TEST_F(SecretFile, WhiteSpaceAtTheEndDoesNotCount) {
  EXPECT_EQ(read_secret_file(write("a secret\n")), "a secret");
  EXPECT_EQ(read_secret_file(write("a secret", 0400)), "a secret");
}

TEST_F(SecretFile, ReadableForOthersNamesTheRemedy) {
  for (mode_t mode : {0640, 0604, 0660, 0602, 0611}) {
    std::string path = write("a secret", mode), text = refusal(path);
    EXPECT_NE(text.find("PLAIT_SECRET_FILE " + path + " can be read or written by others (mode 0"), std::string::npos) << text;
    EXPECT_NE(text.find("run: chmod 600 " + path), std::string::npos) << text;
    EXPECT_EQ(text.find("a secret"), std::string::npos);
  }
}

TEST_F(SecretFile, AbsentEmptyLongOrNoFile) {
  EXPECT_NE(refusal(folder_ + "/none").find("cannot be opened: No such file"), std::string::npos);
  EXPECT_NE(refusal(write(" \n")).find("is empty"), std::string::npos);
  EXPECT_NE(refusal(write(std::string(5000, 'x'))).find("is longer than a secret may be (4096 bytes)"), std::string::npos);
  EXPECT_NE(refusal(folder_).find("is not a regular file"), std::string::npos);
  std::string fifo = folder_ + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_NE(refusal(fifo).find("is not a regular file"), std::string::npos);
}

TEST_F(SecretFile, OfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  std::string path = write("a secret");
  ASSERT_EQ(::chown(path.c_str(), 12345, 12345), 0);
  EXPECT_NE(refusal(path).find("belongs to another user (uid 12345"), std::string::npos) << refusal(path);
}

TEST(Secret, FromADescriptor) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::string secret = make_secret();
  ASSERT_EQ(::write(ends[1], secret.data(), secret.size()), static_cast<ssize_t>(secret.size()));
  ::close(ends[1]);
  EXPECT_EQ(read_secret_descriptor(ends[0]), secret);
  EXPECT_EQ(::close(ends[0]), -1) << "it was left open";
}

// A script of a worker may run the program twice: both inherit the same file in memory.
TEST(Secret, FromAFileInMemoryTwice) {
  int fd = ::memfd_create("secret", 0);
  ASSERT_EQ(::write(fd, "the secret", 10), 10);
  EXPECT_EQ(read_secret_descriptor(::dup(fd)), "the secret");
  EXPECT_EQ(read_secret_descriptor(fd), "the secret");
}

TEST(Secret, MadeOnesAreLongAndDiffer) {
  EXPECT_EQ(make_secret().size(), 64u);
  EXPECT_NE(make_secret(), make_secret());
}

}  // namespace
}  // namespace plait::rendezvous
