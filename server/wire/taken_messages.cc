#include "server/wire/taken_messages.h"

#include <charconv>
#include <system_error>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/base/const_init.h"
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace moed {
namespace {

constexpr uint64_t kHeaderBytes = 1 << 10;

ABSL_CONST_INIT absl::Mutex mutex(absl::kConstInit);

BytesByPort& Counted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  static auto* const counted = new BytesByPort;
  return *counted;
}

}  // namespace

void CountTaken(std::string_view peer, size_t message_bytes) {
  const size_t colon = peer.rfind(':');
  in_port_t port = 0;
  if (colon == peer.npos || std::from_chars(&peer[colon] + 1, peer.data() + peer.size(), port).ec != std::errc()) return;
  absl::MutexLock lock(&mutex);
  Counted()[port] += message_bytes + kHeaderBytes;
}

BytesByPort TakenMessages(bool forget) {
  absl::MutexLock lock(&mutex);
  return forget ? std::exchange(Counted(), {}) : Counted();
}

}  // namespace moed
