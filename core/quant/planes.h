// Codes of a panel block as planes of bits. Byte 4 r + j of each vector of 32 bytes belongs to row r.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/quant/codec.h"

namespace moed::quant {

inline constexpr int kVectorBytes = kGroupColumns * kPanelRows;

// kBits bits of every code of 32 columns, in kBits vectors: those of column 4 s + j are in byte 4 r + j of vector s mod kBits,
// from bit kBits * (s / kBits) on.
template <int kBits>
struct Plane {
  static constexpr int kBytes = kBits * kVectorBytes;
  static constexpr int kMask = (1 << kBits) - 1;
  static constexpr int kRowBytes = kBits * kGroupColumns;

  // Bits [low, low + kBits) of the codes of one row.
  static void Put(const uint8_t* codes, int low, int row, std::byte* plane) {
    uint8_t bytes[kRowBytes] = {};
    for (int first = 0, shift = 0; first < kBlockColumns; first += kRowBytes, shift += kBits) {
      for (int i = 0; i < kRowBytes; ++i) bytes[i] |= static_cast<uint8_t>((codes[first + i] >> low & kMask) << shift);
    }
    for (int v = 0; v < kBits; ++v) {
      std::memcpy(plane + kVectorBytes * v + kGroupColumns * row, bytes + kGroupColumns * v, kGroupColumns);
    }
  }
  static void Add(const std::byte* plane, int low, int row, uint8_t* codes) {
    uint8_t bytes[kRowBytes];
    for (int v = 0; v < kBits; ++v) {
      std::memcpy(bytes + kGroupColumns * v, plane + kVectorBytes * v + kGroupColumns * row, kGroupColumns);
    }
    for (int first = 0, shift = 0; first < kBlockColumns; first += kRowBytes, shift += kBits) {
      for (int i = 0; i < kRowBytes; ++i) codes[first + i] |= static_cast<uint8_t>((bytes[i] >> shift & kMask) << low);
    }
  }
};

// Planes one behind the other, the low bits first.
template <int... kPlaneBits>
struct Planes {
  static constexpr int kBits = (kPlaneBits + ...);
  static constexpr int kBytes = (Plane<kPlaneBits>::kBytes + ...);
  // The 32 codes of one row.
  static void Put(const uint8_t* codes, int row, std::byte* planes) {
    int low = 0;
    ((Plane<kPlaneBits>::Put(codes, low, row, planes), planes += Plane<kPlaneBits>::kBytes, low += kPlaneBits), ...);
  }
  static void Get(const std::byte* planes, int row, uint8_t* codes) {
    std::memset(codes, 0, kBlockColumns);
    int low = 0;
    ((Plane<kPlaneBits>::Add(planes, low, row, codes), planes += Plane<kPlaneBits>::kBytes, low += kPlaneBits), ...);
  }
};

}  // namespace moed::quant
