#include "plait/comm/rendezvous_store.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "plait/base/error.h"
#include "plait/base/log.h"
#include "plait/comm/store_adapter.h"

namespace plait::detail {
namespace {

bool has_several_machines(const RendezvousOptions& options) {
  return options.local_world_size > 0 && options.local_world_size < options.world_size;
}

std::shared_ptr<rendezvous::Server> serve(const RendezvousOptions& options, const rendezvous::Hello& self,
                                          const std::optional<rendezvous::Failure>& failure = {}) {
  rendezvous::ListenOptions where{options.master_addr, options.master_port, options.listen_fd, options.bind, has_several_machines(options)};
  auto listening = rendezvous::listen_on(where);
  if (!listening.note.empty()) log_warning(listening.note);
  if (!failure) warn_without_secret(options);
  rendezvous::Server::Options server;
  server.service.failure = failure;
  server.service.self = self;
  server.service.secret = options.secret;
  server.service.address = listening.address;
  server.service.say = [](const std::string& line) { log_info(line); };
  return std::make_shared<rendezvous::Server>(std::move(listening), std::move(server));
}

}  // namespace

rendezvous::Hello hello_of(const RendezvousOptions& options) {
  auto hello = rendezvous::Hello::of_this_process(options.rank, options.world_size);
  hello.job_id = options.job_id;
  hello.settings = rendezvous::comparable_settings(options.config_text);
  hello.has_secret = !options.secret.empty();
  return hello;
}

void warn_without_secret(const RendezvousOptions& options) {
  if (options.rank != 0 || !options.secret.empty()) return;
  log_warning("no secret: any program that reaches ", rendezvous::address_text(options.master_addr, options.master_port),
              " could join this job; PLAIT_SECRET_FILE names a file with one, the same on all nodes, mode 0600");
}

Joined join_job(const RendezvousOptions& options) {
  if (options.foreign_store) return join_foreign_job(options);
  auto self = hello_of(options);
  std::shared_ptr<rendezvous::Server> server;
  if (options.listen) server = serve(options, self);
  rendezvous::ClientOptions client_options;
  client_options.self = self;
  client_options.secret = options.secret;
  client_options.master_addr = options.master_addr;
  client_options.master_port = options.master_port;
  client_options.timeout = options.rendezvous_timeout;
  client_options.say = [](const std::string& line) { log_info(line); };
  if (server) {
    client_options.master_port = server->own_address().port();
    client_options.addresses = {server->own_address()};
  }
  auto client = std::make_shared<rendezvous::Client>(std::move(client_options));
  client->gather();
  // A rank on the machine of rank 0 may have come over loopback; when others came from outside, they need the address they know.
  Joined joined{c10::make_intrusive<RendezvousStore>(server, client, options.timeout), client->local_address()};
  bool loopback = joined.address.starts_with("127.") || joined.address == "::1";
  if (loopback && !client->outside_address().empty()) joined.address = client->outside_address();
  if (!options.key_prefix.empty()) joined.store = c10::make_intrusive<c10d::PrefixStore>(options.key_prefix, joined.store);
  return joined;
}

}  // namespace plait::detail

namespace plait {

void tell_failure(const RendezvousOptions& options, const Error& failure) {
  if (!options.listen || options.foreign_store || options.world_size == 1) return;
  try {
    detail::serve(options, detail::hello_of(options),
                  rendezvous::Failure{failure.code(), cat("rank 0 ended before the ranks met: ", failure.what())});
  } catch (const Error&) {  // the port cannot be had either: the others' time-out says that nobody is there
  }
}

}  // namespace plait
