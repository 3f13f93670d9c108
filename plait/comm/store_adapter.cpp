#include "plait/comm/store_adapter.h"

namespace plait::detail {
namespace {

std::string plain_text(const RendezvousStore::Bytes& bytes) { return {bytes.begin(), bytes.end()}; }
RendezvousStore::Bytes stored_bytes(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

RendezvousStore::RendezvousStore(std::shared_ptr<rendezvous::Server> server, std::shared_ptr<rendezvous::Client> client,
                                 std::chrono::milliseconds timeout)
    : c10d::Store(timeout), server_(std::move(server)), client_(std::move(client)) {}

c10::intrusive_ptr<c10d::Store> RendezvousStore::clone() { return c10::make_intrusive<RendezvousStore>(server_, client_, timeout_); }

void RendezvousStore::set(const std::string& key, const Bytes& value) { client_->set(key, plain_text(value)); }

RendezvousStore::Bytes RendezvousStore::compareSet(const std::string& key, const Bytes& expected, const Bytes& wanted) {
  return stored_bytes(client_->compare_set(key, plain_text(expected), plain_text(wanted)));
}

RendezvousStore::Bytes RendezvousStore::get(const std::string& key) { return stored_bytes(client_->get(key, timeout_)); }

int64_t RendezvousStore::add(const std::string& key, int64_t value) { return client_->add(key, value); }

bool RendezvousStore::deleteKey(const std::string& key) { return client_->remove(key); }

bool RendezvousStore::check(const std::vector<std::string>& keys) { return client_->check(keys); }

int64_t RendezvousStore::getNumKeys() { return client_->num_keys(); }

void RendezvousStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void RendezvousStore::wait(const std::vector<std::string>& keys, const Millis& timeout) { client_->wait(keys, timeout); }

void RendezvousStore::append(const std::string& key, const Bytes& value) { client_->append(key, plain_text(value)); }

}  // namespace plait::detail
