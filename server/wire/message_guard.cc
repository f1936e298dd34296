#include "server/wire/message_guard.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <numeric>
#include <utility>

#include "absl/status/statusor.h"
#include "core/base/resident_buffers.h"
#include "server/wire/connection_bytes.h"
#include "server/wire/own_sockets.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

// Of fields of five bytes gRPC holds 14 bytes for each while it reads them, and 40 once it passes them on. What grew by more than
// that grew by itself; what grew by less than this much are messages, which take no more once they are whole.
constexpr int64_t kLeastHeldOfHeaders = 8;
constexpr uint64_t kMostHeldOfAByte = 32;
constexpr uint64_t kLeastSent = 128 << 10;
// Where it has grown so far whole messages count as well: who is asked for is whoever sends, then.
constexpr int kTimesTooMuch = 2;
constexpr uint64_t kModestBytes = 8 << 10;  // who sent no more is left alone
constexpr std::chrono::seconds kSnapshotEvery(1);
constexpr std::chrono::milliseconds kUntilItShows(5);    // that memory of those who were ended is free again
constexpr std::chrono::milliseconds kUntilItIsFree(50);  // all of it, however busy the machine

// Buffers are the budget's own, which is used little by little.
ProcessBytes WithoutBuffers(ProcessBytes memory) {
  static std::once_flag warned;
  const absl::StatusOr<int64_t> buffers = ResidentBufferBytes();
  if (buffers.ok()) {
    memory.resident -= *buffers;
  } else {
    std::call_once(warned, [&] { spdlog::warn("a cache that fills may be taken for a flood: {}", buffers.status().ToString()); });
  }
  return memory;
}

uint64_t UnreadBytes(int descriptor) {
  int unread = 0;
  return ioctl(descriptor, FIONREAD, &unread) == 0 ? static_cast<uint64_t>(unread) : 0;
}

uint64_t Sum(const std::vector<Sender>& senders, uint64_t Sender::*what = &Sender::bytes) {
  return std::transform_reduce(senders.begin(), senders.end(), uint64_t{0}, std::plus(),
                               [what](const Sender& one) { return one.*what; });
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
    : listening_(listening), most_grown_(most_grown) {
  // Descriptors may be short when sockets are looked for in earnest: what finds them takes its own now.
  for (const Address& address : listening_) ForEachSocketOf(address, [](int) {});
}

MessageGuard::State MessageGuard::Look(const ProcessBytes& memory) {
  const Clock::time_point now = Clock::now();
  if (now - newer_.at >= kSnapshotEvery) {
    const bool first = newer_.at == Clock::time_point();
    older_ = std::exchange(newer_, Take(memory));
    if (first) {
      older_ = newer_;
      ForgetSent();
    }
  }
  const int64_t grown = Grown(memory);
  const bool alert = now - alarmed_at_ < 2 * kSnapshotEvery;
  if ((alert || grown > most_grown_ / 3) && now - acted_at_ >= kUntilItShows) EndLargest(grown, alert, now);
  return grown > most_grown_ ? State::kTooMuch : grown > most_grown_ / 4 ? State::kGrowing : State::kCalm;
}

int64_t MessageGuard::Grown(const ProcessBytes& memory) const {
  const ProcessBytes before = LeastOf(older_.memory, newer_.memory);
  const int64_t touched = memory.touched - before.touched;
  return touched <= most_grown_ / 4 ? touched : GrownSince(before, WithoutBuffers(memory));
}

// After others were ended the process grows within what they left, which does not show: what was read is taken for headers then.
void MessageGuard::EndLargest(int64_t grown, bool alert, Clock::time_point now) {
  std::vector<Sender> senders = SendersSinceOlder(/*taken_too=*/grown > kTimesTooMuch * most_grown_);
  const uint64_t there = Sum(senders), ended = ended_bytes_ - older_.ended_bytes, sent = there + ended;
  const uint64_t read = Sum(senders, &Sender::read);
  if (now - acted_at_ > kUntilItIsFree) ended_read_ = 0;
  const uint64_t all_read = read + ended_read_ + TakenBytes() - older_.taken;
  const auto are_headers = [all_read](int64_t bytes) { return bytes >= kLeastHeldOfHeaders * static_cast<int64_t>(all_read); };
  const bool alarm = grown > most_grown_ || (grown > most_grown_ / 3 && are_headers(grown));
  if (alert) grown = std::max(grown, static_cast<int64_t>(read * kMostHeldOfAByte));
  if (!alarm && (!alert || grown <= most_grown_ / 3)) return;
  const bool headers = alert || are_headers(grown);
  const auto least = std::max(kLeastSent, static_cast<uint64_t>(grown) / kMostHeldOfAByte);
  if (sent < least) return;
  const int64_t may_stay = most_grown_ / (headers ? 16 : 4);  // headers will take three times as much
  const double left = static_cast<double>(there) * static_cast<double>(may_stay) / static_cast<double>(grown);
  const std::vector<Sender> largest = LargestSenders(std::move(senders), static_cast<uint64_t>(left));
  if (largest.empty()) return;
  for (const Sender& sender : largest) EndConnection(sender.descriptor);
  ended_bytes_ += Sum(largest);
  ended_read_ += Sum(largest, &Sender::read);
  if (now - acted_at_ > kSnapshotEvery)
    spdlog::warn("{} bytes came within two seconds, no whole messages most of them: the {} connections that sent most are closed",
                 sent, largest.size());
  acted_at_ = now;
  if (alarm) alarmed_at_ = now;
}

MessageGuard::Snapshot MessageGuard::Take(const ProcessBytes& memory) {
  Snapshot snapshot;
  snapshot.at = Clock::now();
  snapshot.memory = WithoutBuffers(memory);
  snapshot.ended_bytes = ended_bytes_;
  snapshot.taken = TakenBytes();
  ForgetSent();
  return snapshot;
}

std::vector<Sender> MessageGuard::SendersSinceOlder(bool taken_too) const {
  std::vector<Sender> senders;
  const auto look = [&](int descriptor) {
    const SentBytes sent = SentLately(descriptor);
    const uint64_t read = taken_too ? sent.all : sent.untaken, bytes = read + UnreadBytes(descriptor);
    if (bytes > kModestBytes) senders.push_back({descriptor, bytes - kModestBytes, read - std::min(read, kModestBytes)});
  };
  for (const Address& address : listening_) ForEachSocketOf(address, look);
  return senders;
}

}  // namespace moed
