#include "server/wire/message_guard.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <utility>

#include "server/wire/own_sockets.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

// Fields of five bytes and pings whose answers nobody reads take up to this much. What grew by more grew by itself.
constexpr uint64_t kMostHeldOfAByte = 32;
constexpr uint64_t kLeastSent = 256 << 10;
constexpr uint64_t kModestBytes = 8 << 10;  // who sent no more is left alone
constexpr std::chrono::seconds kSnapshotEvery(1);
constexpr std::chrono::milliseconds kUntilItShows(5);  // that memory of those who were ended is free again

struct Received {
  uint64_t cookie = 0;  // of the socket: descriptors are used again
  uint64_t bytes = 0;
};

// None for what is no connection over TCP.
Received ReceivedBy(int descriptor) {
  Received received;
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {};
  if (length < offsetof(tcp_info, tcpi_bytes_received) + sizeof(info.tcpi_bytes_received)) return {};
  received.bytes = info.tcpi_bytes_received;
  length = sizeof(received.cookie);
  if (getsockopt(descriptor, SOL_SOCKET, SO_COOKIE, &received.cookie, &length) != 0) return {};
  return received;
}

in_port_t PeerPort(int descriptor) {
  sockaddr_storage peer{};
  socklen_t length = sizeof(peer);
  return getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &length) == 0 ? PortOf(peer) : in_port_t{0};
}

template <class Key>
uint64_t BytesOf(const std::map<Key, uint64_t>& bytes, Key key) {
  const auto found = bytes.find(key);
  return found == bytes.end() ? 0 : found->second;
}

uint64_t Sum(const std::vector<Sender>& senders) {
  return std::transform_reduce(senders.begin(), senders.end(), uint64_t{0}, std::plus(),
                               [](const Sender& one) { return one.bytes; });
}

}  // namespace

std::vector<Sender> LargestSenders(std::vector<Sender> senders, uint64_t most) {
  std::ranges::sort(senders, std::ranges::greater(), &Sender::bytes);
  uint64_t left = Sum(senders);
  size_t count = 0;
  for (; left > most; ++count) left -= senders[count].bytes;
  senders.resize(count);
  return senders;
}

MessageGuard::MessageGuard(const std::vector<Address>& listening, int64_t most_grown)
    : listening_(listening), most_grown_(most_grown) {}

bool MessageGuard::Look(int64_t resident_bytes) {
  const Clock::time_point now = Clock::now();
  if (now - newer_.at >= kSnapshotEvery) {
    const bool first = newer_.at == Clock::time_point();
    older_ = std::exchange(newer_, Take(resident_bytes));
    if (first) older_ = newer_;
  }
  const int64_t grown = resident_bytes - std::min(older_.resident_bytes, newer_.resident_bytes);
  if (grown > most_grown_ && now - acted_at_ >= kUntilItShows) EndLargest(grown, now);
  return grown > most_grown_ / 4;
}

void MessageGuard::EndLargest(int64_t grown, Clock::time_point now) {
  std::vector<Sender> senders = SendersSinceOlder();
  const uint64_t there = Sum(senders), sent = there + ended_bytes_ - older_.ended_bytes;
  const auto least = std::max(kLeastSent, static_cast<uint64_t>(grown) / kMostHeldOfAByte);
  if (sent < least) return;
  const double left = static_cast<double>(there) * static_cast<double>(most_grown_ / 4) / static_cast<double>(grown);
  const std::vector<Sender> largest = LargestSenders(std::move(senders), static_cast<uint64_t>(left));
  if (largest.empty()) return;
  for (const Sender& sender : largest) EndConnection(sender.descriptor);
  ended_bytes_ += Sum(largest);
  if (now - acted_at_ > kSnapshotEvery)
    spdlog::warn("{} bytes came within two seconds, no whole messages most of them: the {} connections that sent most are closed",
                 sent, largest.size());
  acted_at_ = now;
}

MessageGuard::Snapshot MessageGuard::Take(int64_t resident_bytes) const {
  Snapshot snapshot;
  snapshot.at = Clock::now();
  snapshot.resident_bytes = resident_bytes;
  snapshot.ended_bytes = ended_bytes_;
  snapshot.taken = TakenMessages(/*forget=*/true);
  const auto look = [&](int descriptor) {
    const Received received = ReceivedBy(descriptor);
    if (received.bytes > 0) snapshot.received[received.cookie] = received.bytes;
  };
  for (const Address& address : listening_) ForEachSocketOf(address, look);
  return snapshot;
}

BytesByPort MessageGuard::TakenSinceOlder() const {
  BytesByPort taken = TakenMessages(/*forget=*/false);
  for (const auto& [port, bytes] : newer_.taken) taken[port] += bytes;
  return taken;
}

std::vector<Sender> MessageGuard::SendersSinceOlder() const {
  const BytesByPort taken = TakenSinceOlder();
  std::vector<Sender> senders;
  const auto look = [&](int descriptor) {
    const Received received = ReceivedBy(descriptor);
    const uint64_t known = BytesOf(older_.received, received.cookie) + BytesOf(taken, PeerPort(descriptor)) + kModestBytes;
    if (received.bytes > known) senders.push_back({descriptor, received.bytes - known});
  };
  for (const Address& address : listening_) ForEachSocketOf(address, look);
  return senders;
}

}  // namespace moed
