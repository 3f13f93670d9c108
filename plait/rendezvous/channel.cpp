#include "plait/rendezvous/channel.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "plait/base/hmac.h"
#include "plait/rendezvous/socket_options.h"

namespace plait::rendezvous {

namespace {

using Clock = Channel::Clock;

// False: the deadline passed.
bool wait_for(int fd, short events, Clock::time_point deadline) {
  while (true) {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd watched{fd, events, 0};
    int n = ::poll(&watched, 1, static_cast<int>(std::min<int64_t>(left, 60000)));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
  }
}

// What came, for a person: the beginning, printable.
std::string shown(std::string_view bytes) {
  std::string out;
  for (char c : bytes.substr(0, std::min(bytes.find_first_of("\r\n"), size_t{60}))) out += c >= 32 && c < 127 ? c : '?';
  return out;
}

int connect_to(const SocketAddress& address, Clock::time_point deadline, FileDescriptor& out) {
  FileDescriptor fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return errno;
  if (::connect(fd.get(), address.get(), address.length) != 0) {
    if (errno != EINPROGRESS) return errno;
    if (!wait_for(fd.get(), POLLOUT, deadline)) return ETIMEDOUT;
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return error;
  }
  // A port of this machine that nobody listens on, and that the system chose for our end too: the connection leads to itself.
  if (plait::rendezvous::local_address(fd.get()).text() == peer_address(fd.get()).text()) return ECONNREFUSED;
  set_stream_options(fd.get());
  out = std::move(fd);
  return 0;
}

}  // namespace

Error error_of(const Reply& reply) {
  std::string text = reply.value.substr(0, 16384);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; }, '?');
  for (ExitCode code : {ExitCode::kBug, ExitCode::kUsage, ExitCode::kData, ExitCode::kCheckpoint, ExitCode::kPeerLost, ExitCode::kResource,
                        ExitCode::kBusy, ExitCode::kAuth}) {
    if (reply.number == static_cast<int64_t>(code)) return Error(code, text);
  }
  return Error(ExitCode::kRendezvous, text);
}

std::variant<std::unique_ptr<Channel>, Channel::Trouble> Channel::open(const SocketAddress& address, Clock::time_point deadline) {
  FileDescriptor fd;
  if (int error = connect_to(address, deadline, fd); error != 0)
    return Trouble{Trouble::Kind::kUnreachable, cat(address.text(), ": ", std::strerror(error))};
  std::unique_ptr<Channel> channel(new Channel(std::move(fd)));
  channel->send_all(kPreamble, deadline);
  try {
    auto reply = channel->receive(deadline);
    if (!reply && !channel->reader_.buffered().empty()) throw BadFrame("no frame");
    if (!reply && channel->closed_)
      return Trouble{Trouble::Kind::kClosed, cat(address.text(),
                                                 " closes the connection without plait's greeting: another program (a torch "
                                                 "store?) has this port, or rank 0 is ending")};
    if (!reply)
      return Trouble{Trouble::Kind::kSilent,
                     cat(address.text(), " is connected, but does not answer: rank 0 is still starting, or another program listens there")};
    if (reply->kind == ReplyKind::kBusy) return Trouble{Trouble::Kind::kBusy, cat(address.text(), " has too many connections just now")};
    if (reply->kind == ReplyKind::kRefused) throw error_of(*reply);
    if (reply->kind != ReplyKind::kChallenge || reply->value.size() != kNonceBytes) throw BadFrame("no challenge");
    channel->server_nonce_ = reply->value;
  } catch (const BadFrame&) {
    return Trouble{Trouble::Kind::kWrongProgram,
                   cat("something else than plait answers at ", address.text(), ": \"", shown(channel->reader_.buffered()), "\"")};
  }
  return channel;
}

std::optional<Channel::Trouble> Channel::greet(const Hello& hello, const std::string& secret, const std::string& address,
                                               Clock::time_point deadline) {
  Request request{RequestKind::kHello, {}, encode(hello), random_bytes(kNonceBytes), {}, 0, {}};
  if (!secret.empty()) request.proof = proof(secret, Prover::kClient, server_nonce_, request.expected, request.value);
  std::optional<Reply> reply;
  try {
    reply = call(to_frame(request), deadline);
  } catch (const BadFrame& e) {
    return Trouble{Trouble::Kind::kClosed, cat(address, " broke the protocol: ", e.what())};
  }
  if (!reply) return Trouble{Trouble::Kind::kClosed, cat(address, " closed the connection before the welcome")};
  if (reply->kind == ReplyKind::kBusy) return Trouble{Trouble::Kind::kBusy, cat(address, " has too many connections just now")};
  if (reply->kind == ReplyKind::kRefused) throw error_of(*reply);
  if (reply->kind != ReplyKind::kWelcome) return Trouble{Trouble::Kind::kClosed, cat(address, " gave no welcome")};
  if (!secret.empty() &&
      !equal_in_constant_time(reply->value, proof(secret, Prover::kServer, server_nonce_, request.expected, request.value)))
    throw_error(ExitCode::kAuth, "authentication refused: what listens at ", address,
                " cannot prove that it knows the secret of this job; ", name_of(hello), " does not join it");
  return std::nullopt;
}

std::optional<Reply> Channel::call(std::string_view frame, Clock::time_point deadline) {
  if (!send_all(frame, deadline)) return std::nullopt;
  return receive(deadline);
}

void Channel::send(std::string_view frame) { send_all(frame, Clock::now() + std::chrono::seconds(1)); }

bool Channel::send_all(std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      if (!wait_for(fd_.get(), POLLOUT, deadline)) return false;
      continue;
    }
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

std::optional<Reply> Channel::receive(Clock::time_point deadline) {
  while (true) {
    if (auto payload = reader_.next(kMostFrameBytes)) return decode_reply(*payload);
    if (!wait_for(fd_.get(), POLLIN, deadline)) return std::nullopt;
    char bytes[16384];
    ssize_t n = ::recv(fd_.get(), bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) {
      closed_ = true;
      return std::nullopt;
    }
    reader_.feed({bytes, static_cast<size_t>(n)});
  }
}

}  // namespace plait::rendezvous
