// Barriers, and what the lanes of a warp exchange.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "core/kernels/cuda/emulation/thread.h"

namespace moed {
inline namespace emulated {

inline void __syncthreads(emulation::Place place = emulation::Place::Here()) { emulation::SyncBlock(place); }
inline void __syncwarp(uint32_t mask = 0xffffffffu, emulation::Place place = emulation::Place::Here()) {
  emulation::SyncWarp(emulation::WarpCall::kSync, mask, 0, 0, place);
}

inline uint32_t __ballot_sync(uint32_t mask, bool predicate, emulation::Place place = emulation::Place::Here()) {
  return static_cast<uint32_t>(emulation::SyncWarp(emulation::WarpCall::kBallot, mask, predicate, 0, place));
}
inline bool __any_sync(uint32_t mask, bool predicate, emulation::Place place = emulation::Place::Here()) {
  return __ballot_sync(mask, predicate, place) != 0;
}
inline bool __all_sync(uint32_t mask, bool predicate, emulation::Place place = emulation::Place::Here()) {
  return __ballot_sync(mask, predicate, place) == mask;
}

// The value of lane `source`, a lane of this warp by its number.
template <class T>
T ShuffleFrom(uint32_t mask, T value, unsigned source, const emulation::Place& place) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  const uint64_t got = emulation::SyncWarp(emulation::WarpCall::kShuffle, mask, std::bit_cast<Bits>(value), source, place);
  return std::bit_cast<T>(static_cast<Bits>(got));
}

// Of the `width` lanes (a power of two) that this lane is among. Where there is none such, a lane gets its own value.
template <class T>
T __shfl_sync(uint32_t mask, T value, int source, int width = 32, emulation::Place place = emulation::Place::Here()) {
  const unsigned first = emulation::Lane() & ~static_cast<unsigned>(width - 1);
  return ShuffleFrom(mask, value, first | (static_cast<unsigned>(source) & static_cast<unsigned>(width - 1)), place);
}
template <class T>
T __shfl_xor_sync(uint32_t mask, T value, int lane_mask, int width = 32, emulation::Place place = emulation::Place::Here()) {
  const unsigned lane = emulation::Lane();
  const unsigned source = lane ^ static_cast<unsigned>(lane_mask);
  const unsigned end = (lane & ~static_cast<unsigned>(width - 1)) + static_cast<unsigned>(width);
  return ShuffleFrom(mask, value, source < end ? source : lane, place);
}
template <class T>
T __shfl_down_sync(uint32_t mask, T value, unsigned delta, int width = 32, emulation::Place place = emulation::Place::Here()) {
  const unsigned lane = emulation::Lane();
  const unsigned within = lane & static_cast<unsigned>(width - 1);
  return ShuffleFrom(mask, value, within + delta < static_cast<unsigned>(width) ? lane + delta : lane, place);
}
template <class T>
T __shfl_up_sync(uint32_t mask, T value, unsigned delta, int width = 32, emulation::Place place = emulation::Place::Here()) {
  const unsigned lane = emulation::Lane();
  const unsigned within = lane & static_cast<unsigned>(width - 1);
  return ShuffleFrom(mask, value, within >= delta ? lane - delta : lane, place);
}

// Of all 32 lanes' integers.
template <class T, class Join>
T JoinedByWarp(uint32_t mask, T value, const Join& join, const emulation::Place& place) {
  for (unsigned lanes = 16; lanes > 0; lanes /= 2) {
    value = join(value, ShuffleFrom(mask, value, emulation::Lane() ^ lanes, place));
  }
  return value;
}
template <std::integral T>
T __reduce_max_sync(uint32_t mask, T value, emulation::Place place = emulation::Place::Here()) {
  return JoinedByWarp(
      mask, value, [](T a, T b) { return a < b ? b : a; }, place);
}
template <std::integral T>
T __reduce_min_sync(uint32_t mask, T value, emulation::Place place = emulation::Place::Here()) {
  return JoinedByWarp(
      mask, value, [](T a, T b) { return b < a ? b : a; }, place);
}
template <std::integral T>
T __reduce_add_sync(uint32_t mask, T value, emulation::Place place = emulation::Place::Here()) {
  return JoinedByWarp(
      mask, value, [](T a, T b) { return static_cast<T>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b)); }, place);
}

}  // namespace emulated
}  // namespace moed
