#include "core/kernels/cuda/emulation/access_log.h"

#include <algorithm>
#include <array>
#include <set>

#include "core/kernels/cuda/emulation/block.h"

namespace moed::emulation {
namespace {

constexpr uintptr_t kSectorBytes = 32;
constexpr uintptr_t kBanks = 32;
constexpr uintptr_t kBankBytes = 4;
constexpr unsigned kWarps = kMostThreads / kWarpLanes;

template <class Lanes>
void CountGlobal(const Lanes& lanes, GlobalTraffic& traffic) {
  std::set<uintptr_t> sectors, bytes;
  for (const auto& lane : lanes) {
    traffic.bytes_by_width[lane.bytes] += lane.bytes;
    for (uintptr_t at = lane.address; at < lane.address + lane.bytes; ++at) {
      sectors.insert(at / kSectorBytes);
      bytes.insert(at);
    }
  }
  ++traffic.requests;
  traffic.sectors_moved += sectors.size();
  traffic.sectors_needed += (bytes.size() + kSectorBytes - 1) / kSectorBytes;
}

// Words of the most-wanted bank.
template <class Iterator>
unsigned Ways(Iterator begin, Iterator end) {
  std::array<std::set<uintptr_t>, kBanks> words;
  for (auto lane = begin; lane != end; ++lane) {
    for (uintptr_t at = lane->address; at < lane->address + lane->bytes; ++at)
      words[at / kBankBytes % kBanks].insert(at / kBankBytes);
  }
  size_t most = 0;
  for (const auto& bank : words) most = std::max(most, bank.size());
  return static_cast<unsigned>(most);
}

template <class Lanes>
void CountShared(const Lanes& lanes, SharedTraffic& traffic) {
  ++traffic.requests;
  const size_t together = kWarpLanes * kBankBytes / std::max<size_t>(lanes.front().bytes, kBankBytes);
  for (auto begin = lanes.begin(); begin != lanes.end();) {
    const auto end =
        std::find_if(begin, lanes.end(), [&](const auto& lane) { return lane.number / together != begin->number / together; });
    const unsigned ways = Ways(begin, end);
    traffic.passes += ways;
    ++traffic.passes_needed;
    traffic.worst_ways = std::max(traffic.worst_ways, ways);
    begin = end;
  }
}

}  // namespace

void AccessLog::BlockBegins(const std::string& kernel) { kernel_ = &kernels_[kernel]; }

void AccessLog::Add(const Access& access, unsigned thread, const void* place) {
  Instruction& instruction = instructions_[place];
  instruction.space = access.space;
  instruction.kind = access.kind;
  instruction.times.resize(kMostThreads);
  const size_t request = size_t{instruction.times[thread]++} * kWarps + thread / kWarpLanes;
  if (request >= instruction.requests.size()) instruction.requests.resize(request + 1);
  instruction.requests[request].push_back({thread % kWarpLanes, access.address, access.bytes});
}

void AccessLog::BlockEnds() {
  for (auto& [place, instruction] : instructions_) {
    for (std::vector<Lane>& lanes : instruction.requests) {
      if (lanes.empty()) continue;
      std::sort(lanes.begin(), lanes.end(), [](const Lane& a, const Lane& b) { return a.number < b.number; });
      if (instruction.space == Space::kShared) {
        CountShared(lanes, kernel_->shared);
      } else {
        CountGlobal(lanes, instruction.kind == AccessKind::kLoad ? kernel_->loads : kernel_->stores);
      }
    }
  }
  instructions_.clear();
}

}  // namespace moed::emulation
