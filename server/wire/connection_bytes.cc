#include "server/wire/connection_bytes.h"

#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/base/const_init.h"
#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/synchronization/mutex.h"
#include "server/wire/peer_name.h"

namespace moed {
namespace {

// Of a call beside its message: frames, and what a header usually is.
constexpr uint64_t kCallBytes = 256;
// The least, for calls that might pay for what another connection has sent.
constexpr uint64_t kLeastCallBytes = 64;

// What a client has sent: over TCP that is one connection. No other stream's calls come between headers without an end, so that
// nothing pays for those.
struct Account {
  int connections = 0;
  uint64_t received = 0;
  uint64_t settled = 0;  // of it: taken, or old
  uint64_t marked = 0;   // received when it was last forgotten
};

struct Connection {
  uint64_t peer = 0;  // the key of its account
  uint64_t received = 0;
  uint64_t marked = 0;  // likewise
  uint64_t old = 0;
};

// Connections that are closed stay until their descriptor is used again. Neither table has memory of its own for each: a few
// bytes between what gRPC had for a connection and gives back would keep its pages.
struct Book {
  absl::flat_hash_map<uint64_t, Account> accounts;   // by KeyOf(peer)
  absl::flat_hash_map<int, Connection> connections;  // by descriptor
  uint64_t taken = 0;                                // by messages
};

// Of two peers with one key each pays for the other's too.
uint64_t KeyOf(std::string_view peer) { return absl::HashOf(peer); }

ABSL_CONST_INIT absl::Mutex mutex(absl::kConstInit);

Book& Known() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  static auto* const book = new Book;
  return *book;
}

void Drop(int descriptor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  const auto found = Known().connections.find(descriptor);
  if (found == Known().connections.end()) return;
  const uint64_t peer = found->second.peer;
  Known().connections.erase(found);
  if (--Known().accounts[peer].connections == 0) Known().accounts.erase(peer);
}

}  // namespace

void CountConnection(int descriptor) {
  sockaddr_storage peer{};
  socklen_t length = sizeof(peer);
  const bool named = getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
  const uint64_t key = KeyOf(named ? PeerName(peer) : std::string());
  absl::MutexLock lock(&mutex);
  Drop(descriptor);
  ++Known().accounts[key].connections;
  Known().connections.emplace(descriptor, Connection{.peer = key});
}

void DropConnection(int descriptor) {
  absl::MutexLock lock(&mutex);
  Drop(descriptor);
}

void CountReceived(int descriptor, uint64_t bytes) {
  absl::MutexLock lock(&mutex);
  const auto found = Known().connections.find(descriptor);
  if (found == Known().connections.end()) return;
  found->second.received += bytes;
  Known().accounts[found->second.peer].received += bytes;
}

void CountTaken(std::string_view peer, size_t message_bytes) {
  absl::MutexLock lock(&mutex);
  const auto found = Known().accounts.find(KeyOf(PeerName(peer)));
  if (found == Known().accounts.end()) return;
  Account& account = found->second;
  Known().taken += message_bytes;
  const uint64_t call_bytes = account.connections > 1 ? kLeastCallBytes : kCallBytes;
  account.settled = std::min(account.settled + message_bytes + call_bytes, account.received);
}

uint64_t TakenBytes() {
  absl::MutexLock lock(&mutex);
  return Known().taken;
}

SentBytes SentLately(int descriptor) {
  absl::MutexLock lock(&mutex);
  const auto found = Known().connections.find(descriptor);
  if (found == Known().connections.end()) return {};
  const Connection& connection = found->second;
  const Account& account = Known().accounts[connection.peer];
  const uint64_t all = connection.received - connection.old;
  return {.all = all, .untaken = std::min(all, account.received - account.settled)};
}

void ForgetSent() {
  absl::MutexLock lock(&mutex);
  for (auto& [descriptor, connection] : Known().connections)
    connection.old = std::exchange(connection.marked, connection.received);
  for (auto& [peer, account] : Known().accounts)
    account.settled = std::max(account.settled, std::exchange(account.marked, account.received));
}

}  // namespace moed
