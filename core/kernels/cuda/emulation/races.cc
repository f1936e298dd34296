#include "core/kernels/cuda/emulation/races.h"

#include <algorithm>

namespace moed::emulation {
namespace {

// Whether the access happened before whatever this thread does now.
bool Before(const Stamp& stamp, const BarrierClock& clock, unsigned thread) {
  if (stamp.time < clock.launch_began) return true;
  if (stamp.time < clock.block_began) return false;  // another block of the launch
  const bool own = stamp.thread == thread && !stamp.several;
  const unsigned warp = thread / kWarpLanes;
  const bool same_warp = stamp.thread / kWarpLanes == warp;
  return own || stamp.time < clock.block_synced || (same_warp && stamp.time < clock.warp_synced[warp]);
}

void RememberLoad(History& byte, const BarrierClock& clock, unsigned thread) {
  const unsigned warp = thread / kWarpLanes;
  for (Stamp* load : {&byte.load, &byte.other_load}) {
    if (load->time >= clock.block_began) continue;
    byte.load_of_earlier_block = std::max(byte.load_of_earlier_block, load->time);
    *load = {};
  }
  if (byte.load.time != 0 && byte.load.thread / kWarpLanes != warp) std::swap(byte.load, byte.other_load);
  Stamp& load = byte.load;
  if (load.time != 0 && load.thread / kWarpLanes != warp) load = {};
  const bool together = load.time >= std::max(clock.block_synced, clock.warp_synced[warp]) && load.time != 0;
  load.several = together && (load.several || load.thread != thread);
  load.time = clock.now;
  load.thread = static_cast<uint16_t>(thread);
}

// Puts the access into the history of what it touches.
std::optional<Conflict> Touch(History& byte, const BarrierClock& clock, AccessKind kind, unsigned thread) {
  std::optional<Conflict> conflict;
  const auto against = [&](const Stamp& stamp, bool stored) {
    if (!conflict && !Before(stamp, clock, thread))
      conflict = {.with = stamp, .stored = stored, .same_block = stamp.time >= clock.block_began};
  };
  against(byte.store, true);
  if (kind == AccessKind::kLoad) {
    RememberLoad(byte, clock, thread);
    return conflict;
  }
  against(byte.load, false);
  against(byte.other_load, false);
  against({.time = byte.load_of_earlier_block}, false);
  byte.store = {.time = clock.now, .thread = static_cast<uint16_t>(thread)};
  return conflict;
}

}  // namespace

void BarrierClock::BlockBegins() {
  block_began = block_synced = ++now;
  warp_synced.fill(now);
}

std::optional<Conflict> WordHistory::Touch(const BarrierClock& clock, AccessKind kind, unsigned thread, unsigned first,
                                           unsigned end) {
  if (bytes_ == nullptr) {
    if (end - first == kWordBytes) return emulation::Touch(whole_, clock, kind, thread);
    bytes_ = std::make_unique<std::array<History, kWordBytes>>();
    bytes_->fill(whole_);
  }
  std::optional<Conflict> found;
  for (unsigned i = first; i < end; ++i) {
    const std::optional<Conflict> conflict = emulation::Touch((*bytes_)[i], clock, kind, thread);
    if (!conflict || found) continue;
    found = conflict;
    found->byte = i;
  }
  return found;
}

bool WordHistory::StoredSince(uint32_t time, unsigned first, unsigned end) const {
  if (bytes_ == nullptr) return whole_.store.time >= time;
  return std::all_of(bytes_->begin() + first, bytes_->begin() + end,
                     [&](const History& byte) { return byte.store.time >= time; });
}

void GlobalHistory::LaunchBegins() {
  constexpr size_t kMostPages = 16384;  // what is older than a launch says nothing any more
  if (pages_.size() <= kMostPages) return;
  pages_.clear();
  last_ = nullptr;
}

WordHistory& GlobalHistory::operator[](uintptr_t word) {
  const uintptr_t number = word / kPage;
  if (last_ == nullptr || number != last_number_) {
    std::unique_ptr<Page>& page = pages_[number];
    if (page == nullptr) page = std::make_unique<Page>();
    last_ = page.get();
    last_number_ = number;
  }
  return (*last_)[word % kPage];
}

}  // namespace moed::emulation
