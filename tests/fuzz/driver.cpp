// Runs a fuzz entry (LLVMFuzzerTestOneInput) where libFuzzer is not at hand: g++ with -fsanitize-coverage=trace-pc.
//   fuzz_NAME CORPUS_FOLDER [--seconds N] [--seed S] [--out FOLDER]     mutates the corpus for N seconds (default 30)
//   fuzz_NAME FILE ...                                                  runs these inputs, each once
// A child process does the work and a parent watches it: when the child dies, or one input takes longer than kHangSeconds, the parent writes
// that input to FOLDER/crash-HASH or FOLDER/hang-HASH and ends with code 1. Every input that reaches new code is kept and mutated further.
#include <dirent.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr size_t kMostInputBytes = 64 << 10, kUsualInputBytes = 4 << 10, kMapBytes = 1 << 16;
constexpr int kHangSeconds = 30;  // of one input, on a busy machine and with the sanitizers

// What parent and child share.
struct Shared {
  std::atomic<int64_t> executions{0}, kept{0};
  std::atomic<bool> done{false};
  std::atomic<size_t> size{0};
  uint8_t input[kMostInputBytes];
};

uint8_t reached[kMapBytes];  // this input
uint8_t known[kMapBytes];    // all inputs so far

}  // namespace

// The compiler puts a call of this at every edge. Counted up to 255 and then looked at by powers of two, as AFL does.
extern "C" void __sanitizer_cov_trace_pc() {
  auto place = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  uint8_t& count = reached[(place ^ (place >> 16)) % kMapBytes];
  if (count < 255) ++count;
}

extern "C" const char* __asan_default_options() {
  return "hard_rss_limit_mb=2048:detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=1024";
}

namespace {

uint8_t bucket(uint8_t count) {
  uint8_t bit = 0;
  while (count >>= 1) ++bit;
  return static_cast<uint8_t>(1u << bit);
}

bool run_and_look(const std::string& input, Shared* shared) {
  std::memcpy(shared->input, input.data(), input.size());
  shared->size = input.size();
  std::memset(reached, 0, kMapBytes);
  // A copy of just the right size, so that reading one byte too many is seen.
  std::vector<uint8_t> exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
  ++shared->executions;
  bool is_new = false;
  for (size_t i = 0; i < kMapBytes; ++i) {
    if (reached[i] == 0) continue;
    uint8_t bits = bucket(reached[i]);
    if (bits & ~known[i]) is_new = true;
    known[i] |= bits;
  }
  return is_new;
}

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str().substr(0, kMostInputBytes);
}

class Mutator {
 public:
  Mutator(uint64_t seed, const std::vector<std::string>& corpus) : random_(seed) {
    // Words of the seeds are the dictionary.
    for (const auto& input : corpus) {
      std::string word;
      for (char c : input + " ") {
        if (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.') word.push_back(c);
        else if (!word.empty()) words_.push_back(std::exchange(word, ""));
      }
    }
    for (const char* word : {"null",
                             "~",
                             "-1",
                             "0",
                             "9223372036854775807",
                             "-9223372036854775808",
                             "1e999",
                             "nan",
                             "inf",
                             "&a",
                             "*a",
                             "<<: *a",
                             "{",
                             "}",
                             "[",
                             "]",
                             "\"",
                             "'",
                             ": ",
                             ", ",
                             "\n",
                             "\n  ",
                             "- ",
                             "\xff",
                             "\xc3\xa9",
                             "\xed\xa0\x80",
                             "\xef\xbb\xbf",
                             "\\u0000",
                             "!!int ",
                             "|\n",
                             "%",
                             "#",
                             "="})
      words_.push_back(word);
    std::sort(words_.begin(), words_.end());
    words_.erase(std::unique(words_.begin(), words_.end()), words_.end());
  }

  std::string mutate(const std::vector<std::string>& corpus) {
    std::string input = corpus[below(corpus.size())];
    for (uint64_t rounds = 1 + below(below(4) == 0 ? 16 : 4); rounds > 0; --rounds) change(&input, corpus);
    size_t most = below(64) == 0 ? kMostInputBytes : kUsualInputBytes;
    if (input.size() > most) input.resize(most);
    return input;
  }

  uint64_t below(uint64_t limit) { return limit == 0 ? 0 : random_() % limit; }

 private:
  void change(std::string* input, const std::vector<std::string>& corpus) {
    size_t size = input->size(), at = below(size + 1), length = below(std::min<size_t>(size - at, 1 + below(64)) + 1);
    switch (below(10)) {
      case 0:
        if (at < size) (*input)[at] = static_cast<char>((*input)[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < size) (*input)[at] = static_cast<char>(below(256));
        break;
      case 2: input->erase(at, length); break;
      case 3: input->insert(below(size + 1), input->substr(at, length)); break;
      case 4: input->insert(at, words_[below(words_.size())]); break;
      case 5: input->replace(at, length, words_[below(words_.size())]); break;
      case 6: {  // splice: the rest comes from another input
        const std::string& other = corpus[below(corpus.size())];
        *input = input->substr(0, at) + other.substr(below(other.size() + 1));
        break;
      }
      case 7:  // a digit becomes another
        for (size_t i = at; i < size; ++i)
          if (std::isdigit(static_cast<unsigned char>((*input)[i]))) {
            (*input)[i] = static_cast<char>('0' + below(10));
            break;
          }
        break;
      case 8: {  // the same again and again: depth and length
        std::string piece = input->substr(at, 1 + below(8));
        if (below(16) != 0 || piece.empty()) break;
        std::string many;
        for (uint64_t n = below(2000); n > 0 && many.size() < kUsualInputBytes * 2; --n) many += piece;
        input->insert(at, many);
        break;
      }
      default: {
        std::string bytes(1 + below(8), '\0');
        for (char& c : bytes) c = static_cast<char>(below(4) == 0 ? 0xff : below(256));
        input->insert(at, bytes);
      }
    }
  }

  std::mt19937_64 random_;
  std::vector<std::string> words_;
};

[[noreturn]] void work(std::vector<std::string> corpus, int64_t seconds, uint64_t seed, Shared* shared) {
  auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  Mutator mutator(seed, corpus);
  for (const auto& input : corpus) run_and_look(input, shared);
  while (std::chrono::steady_clock::now() < end) {
    std::string input = mutator.mutate(corpus);
    if (!run_and_look(input, shared)) continue;
    corpus.push_back(std::move(input));
    ++shared->kept;
  }
  shared->done = true;
  _exit(0);
}

std::vector<std::string> read_corpus(const std::string& folder) {
  std::vector<std::string> names;
  if (DIR* list = ::opendir(folder.c_str())) {
    while (dirent* entry = ::readdir(list))
      if (entry->d_name[0] != '.') names.push_back(folder + "/" + entry->d_name);
    ::closedir(list);
  }
  std::sort(names.begin(), names.end());
  std::vector<std::string> corpus;
  for (const auto& name : names) corpus.push_back(read_bytes(name));
  return corpus;
}

int report_failure(const Shared& shared, const std::string& out, const char* kind, int status) {
  std::string input(reinterpret_cast<const char*>(shared.input), shared.size);
  char path[4096];
  std::snprintf(path, sizeof path, "%s/%s-%016zx", out.c_str(), kind, std::hash<std::string>{}(input));
  std::ofstream(path, std::ios::binary) << input;
  std::fprintf(stderr, "FAILED: %s (status %d) after %ld executions; the input is in %s\n", kind, status,
               static_cast<long>(shared.executions.load()), path);
  return 1;
}

// Waits for the child; on a hang it is ended.
int watch(pid_t child, const Shared& shared, const std::string& out, int64_t seconds) {
  int64_t seen = -1;
  auto since = std::chrono::steady_clock::now();
  for (int status = 0;;) {
    pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) {
      if (!shared.done) return report_failure(shared, out, "crash", status);
      std::printf("%ld executions, %ld inputs reached new code, nothing failed\n", static_cast<long>(shared.executions.load()),
                  static_cast<long>(shared.kept.load()));
      return 0;
    }
    auto now = std::chrono::steady_clock::now();
    if (shared.executions != seen) seen = shared.executions, since = now;
    if (now - since > std::chrono::seconds(kHangSeconds)) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return report_failure(shared, out, "hang", status);
    }
    ::usleep(50000);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string folder, out = ".";
  int64_t seconds = 30;
  uint64_t seed = 1;
  std::vector<std::string> words(argv + 1, argv + argc), files;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--seconds" && i + 1 < words.size()) seconds = std::atoll(words[++i].c_str());
    else if (words[i] == "--seed" && i + 1 < words.size()) seed = std::strtoull(words[++i].c_str(), nullptr, 10);
    else if (words[i] == "--out" && i + 1 < words.size()) out = words[++i];
    else files.push_back(words[i]);
  }
  std::vector<std::string> corpus = files.size() == 1 ? read_corpus(files[0]) : std::vector<std::string>();
  if (corpus.empty()) {
    for (const auto& file : files) {
      std::string input = read_bytes(file);
      std::vector<uint8_t> exact(input.begin(), input.end());
      LLVMFuzzerTestOneInput(exact.data(), exact.size());
    }
    std::printf("%zu inputs, nothing failed\n", files.size());
    return files.empty() ? 2 : 0;
  }
  void* page = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return 8;
  auto* shared = new (page) Shared;
  std::fflush(stdout);
  pid_t child = ::fork();
  if (child < 0) return 8;
  if (child == 0) work(std::move(corpus), seconds, seed, shared);
  return watch(child, *shared, out, seconds);
}
