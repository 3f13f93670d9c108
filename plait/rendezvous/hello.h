// Hello: what a rank says about itself in its first message, so that ranks which do not belong together are told so by name; and the
// proofs (HMAC over both sides' nonces) that both sides know the job's secret, which itself is never sent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace plait::rendezvous {

// Sent first by a client, outside of any frame. It ends like an HTTP request, so that a web server on the port answers at once.
constexpr std::string_view kPreamble = "PLAIT-RENDEZVOUS 1\r\n\r\n";
constexpr size_t kNonceBytes = 32;
constexpr size_t kMostHelloBytes = size_t{256} << 10;

// Version of the program, "0.1.0".
std::string plait_version();

struct Hello {
  int64_t rank = 0;
  int64_t world_size = 1;
  std::string job_id;  // empty = none given
  std::string version = plait_version();
  std::string host;
  int64_t pid = 0;
  std::string instance;     // random, one a process and attempt: further connections of a rank carry the same one
  bool further = false;     // a further connection of a rank that is in
  bool has_secret = false;  // whether the proof means something
  std::string settings;     // comparable_settings(); empty = not compared

  // This process: host, pid and a new instance.
  static Hello of_this_process(int64_t rank, int64_t world_size);
};

std::string encode(const Hello& hello);
// Throws BadFrame.
Hello decode_hello(std::string_view bytes);

// "rank 3 (host node1, pid 4711)"
std::string name_of(const Hello& hello);

enum class Prover { kClient, kServer };
std::string proof(std::string_view secret, Prover prover, std::string_view server_nonce, std::string_view client_nonce,
                  std::string_view hello_bytes);

std::string random_bytes(size_t count);

// "contents of NAME: DIGEST PATH": a line for behind the settings text. What the file of setting NAME holds must be equal on all ranks;
// where it lies is only said in messages.
std::string contents_line(std::string_view name, std::string_view digest, std::string_view path);

// The lines of a resolved settings text (print_config, contents_line) that must be equal on all ranks, as "a.b.c: value": folders and files
// that may lie elsewhere on another machine are left out, very long values are replaced by their beginning and hash.
std::string comparable_settings(std::string_view config_text);

struct SettingDifference {
  std::string name;
  std::string first, second;  // values, or "(not set)"; of contents the paths
  bool of_contents = false;   // of an input file
};
// The first setting in which two comparable_settings() differ.
std::optional<SettingDifference> first_difference(std::string_view first, std::string_view second);

}  // namespace plait::rendezvous
