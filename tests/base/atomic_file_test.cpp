#include "plait/base/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "plait/base/error.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

class AtomicFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "plait-atomic-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string content(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }
  size_t num_files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator())); }
  static ExitCode code_of(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::kOk;
  }

  fs::path folder_;
};

TEST_F(AtomicFileTest, AppearsOnlyAtCommit) {
  std::string path = folder_ / "a.bin";
  {
    AtomicFile file(path);
    file.write("head....");
    file.write(std::string(100000, 'x'));
    file.write_at(4, "ABCD", 4);
    EXPECT_FALSE(fs::exists(path));
    file.commit();
  }
  EXPECT_EQ(content(path), "headABCD" + std::string(100000, 'x'));
  EXPECT_EQ(num_files(), 1u);
}

TEST_F(AtomicFileTest, WithoutCommitTheOldFileStays) {
  std::string path = folder_ / "a.txt";
  write_file_atomically(path, "old");
  {
    AtomicFile file(path);
    file.write("half of the new");
  }
  EXPECT_EQ(content(path), "old");
  EXPECT_EQ(num_files(), 1u);
  write_file_atomically(path, "new");
  EXPECT_EQ(content(path), "new");
}

TEST_F(AtomicFileTest, TwoWritersOfOneName) {
  std::string path = folder_ / "a.txt";
  AtomicFile first(path), second(path);
  first.write("first");
  second.write("second");
  first.commit();
  second.commit();
  EXPECT_EQ(content(path), "second");
  EXPECT_EQ(num_files(), 1u);
}

TEST_F(AtomicFileTest, AbsentFolderIsAUsageError) {
  EXPECT_EQ(code_of([&] { AtomicFile file(folder_ / "none" / "a.txt"); }), ExitCode::kUsage);
}

TEST_F(AtomicFileTest, FullDiskIsAResourceErrorAndKeepsTheOldFile) {
  // A file size limit stands in for a full disk: write(2) fails half-way with EFBIG.
  std::string path = folder_ / "a.txt";
  write_file_atomically(path, "old");
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  auto* handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 4096;
  setrlimit(RLIMIT_FSIZE, &small);
  ExitCode code = code_of([&] { write_file_atomically(path, std::string(10000, 'x')); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(code, ExitCode::kResource);
  EXPECT_EQ(content(path), "old");
  EXPECT_EQ(num_files(), 1u);
}

TEST_F(AtomicFileTest, CodesOfErrno) {
  EXPECT_EQ(code_of([] { throw_file_error("write", "x", ENOSPC); }), ExitCode::kResource);
  EXPECT_EQ(code_of([] { throw_file_error("write", "x", EMFILE); }), ExitCode::kResource);
  EXPECT_EQ(code_of([] { throw_file_error("open", "x", EACCES); }), ExitCode::kUsage);
  EXPECT_EQ(code_of([] { throw_file_error("open", "x", ENOENT); }), ExitCode::kUsage);
}

}  // namespace
}  // namespace plait
