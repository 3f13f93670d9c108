// The job's secret: made by our own launcher for its ranks, or read from a file that all nodes share (PLAIT_SECRET_FILE). It is the key of
// the proofs in rendezvous/hello.h; it is never sent, printed or put on a command line.
#pragma once

#include <string>

namespace plait::rendezvous {

// 256 random bits, as 64 hexadecimal characters.
std::string make_secret();

// The content of `path` without the white space at its end. Throws Error(kAuth) that names the file and the remedy: it must be a regular
// file of this user or root, not readable for others, not empty, at most 4 KiB. `origin`: what named the file, for the message.
std::string read_secret_file(const std::string& path, const std::string& origin = "PLAIT_SECRET_FILE");

// Reads a secret from an inherited descriptor (a pipe) until its end, and closes it. Throws Error(kAuth).
std::string read_secret_descriptor(int fd);

}  // namespace plait::rendezvous
