#include "core/kernels/cuda/emulation/access_log.h"

#include <algorithm>
#include <array>

#include "absl/container/inlined_vector.h"
#include "core/kernels/cuda/emulation/block.h"
#include "core/kernels/cuda/emulation/device_address.h"

namespace moed::emulation {
namespace {

constexpr uintptr_t kSectorBytes = 32;
constexpr uintptr_t kBanks = 32;
constexpr uintptr_t kBankBytes = 4;
constexpr unsigned kWarps = kMostThreads / kWarpLanes;

// Of one request, whose lanes come in the order of their addresses.
template <class Lanes>
GlobalTraffic CountGlobal(const Lanes& lanes) {
  GlobalTraffic traffic = {.requests = 1};
  uint64_t bytes = 0;
  uintptr_t sectors_end = 0, bytes_end = 0;  // of what was counted
  for (const auto& lane : lanes) {
    const uintptr_t end = lane.address + lane.bytes, end_sector = (end + kSectorBytes - 1) / kSectorBytes;
    const uintptr_t sector = std::max(lane.address / kSectorBytes, sectors_end), byte = std::max(lane.address, bytes_end);
    traffic.bytes_by_width[lane.bytes] += lane.bytes;
    traffic.sectors_moved += end_sector > sector ? end_sector - sector : 0;
    bytes += end > byte ? end - byte : 0;
    sectors_end = std::max(sectors_end, end_sector);
    bytes_end = std::max(bytes_end, end);
  }
  traffic.sectors_needed = (bytes + kSectorBytes - 1) / kSectorBytes;
  return traffic;
}

// Words of the most wanted bank.
template <class Iterator>
unsigned Ways(Iterator begin, Iterator end) {
  absl::InlinedVector<uintptr_t, 2 * kBanks> words;
  for (auto lane = begin; lane != end; ++lane) {
    for (uintptr_t word = lane->address / kBankBytes; word * kBankBytes < lane->address + lane->bytes; ++word)
      words.push_back(word);
  }
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  std::array<unsigned, kBanks> of_banks = {};
  for (const uintptr_t word : words) ++of_banks[word % kBanks];
  return *std::max_element(of_banks.begin(), of_banks.end());
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

void GlobalTraffic::Add(const GlobalTraffic& other) {
  requests += other.requests;
  sectors_moved += other.sectors_moved;
  sectors_needed += other.sectors_needed;
  for (const auto& [width, bytes] : other.bytes_by_width) bytes_by_width[width] += bytes;
}

void AccessLog::LaunchBegins(const std::string& kernel) {
  kernel_ = &kernels_[kernel];
  ++kernel_->launches;
  instructions_.clear();
}

void AccessLog::Add(const Access& access, unsigned thread, const void* place) {
  Instruction& instruction = instructions_[place];
  instruction.space = access.space;
  instruction.kind = access.kind;
  instruction.once = access.once;
  instruction.times.resize(kMostThreads);
  const size_t request = size_t{instruction.times[thread]++} * kWarps + thread / kWarpLanes;
  if (request >= instruction.requests.size()) instruction.requests.resize(request + 1);
  instruction.requests[request].push_back({thread % kWarpLanes, access.address, access.bytes});
}

void AccessLog::BlockSynced() {
  for (auto& [place, instruction] : instructions_) {
    for (std::vector<Lane>& lanes : instruction.requests) {
      if (lanes.empty()) continue;
      if (instruction.space == Space::kShared) {
        std::sort(lanes.begin(), lanes.end(), [](const Lane& a, const Lane& b) { return a.number < b.number; });
        CountShared(lanes, kernel_->shared);
        continue;
      }
      std::sort(lanes.begin(), lanes.end(), [](const Lane& a, const Lane& b) { return a.address < b.address; });
      const GlobalTraffic request = CountGlobal(lanes);
      (instruction.kind == AccessKind::kLoad ? kernel_->loads : kernel_->stores).Add(request);
      if (instruction.kind != AccessKind::kLoad) continue;
      if (instruction.once) {
        kernel_->loads_once.Add(request);
      } else if ((lanes.front().address & kDeviceBit) == 0) {
        kernel_->loads_of_host.Add(request);
      }
    }
    instruction.requests.clear();
    std::fill(instruction.times.begin(), instruction.times.end(), 0);
  }
}

}  // namespace moed::emulation
