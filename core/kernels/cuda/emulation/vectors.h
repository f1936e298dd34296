// CUDA's vector types, with its sizes and alignments.
#pragma once

#include <cstdint>

namespace moed {
inline namespace emulated {

struct uint3 {
  unsigned x, y, z;
};

#define MOED_VECTOR_TYPES(name, number)                                   \
  struct alignas(2 * sizeof(number)) name##2 {                            \
    number x, y;                                                          \
  };                                                                      \
  struct alignas(4 * sizeof(number)) name##4 {                            \
    number x, y, z, w;                                                    \
  };                                                                      \
  constexpr name##2 make_##name##2(number x, number y) { return {x, y}; } \
  constexpr name##4 make_##name##4(number x, number y, number z, number w) { return {x, y, z, w}; }

MOED_VECTOR_TYPES(char, int8_t)
MOED_VECTOR_TYPES(uchar, uint8_t)
MOED_VECTOR_TYPES(short, int16_t)
MOED_VECTOR_TYPES(ushort, uint16_t)
MOED_VECTOR_TYPES(int, int32_t)
MOED_VECTOR_TYPES(uint, uint32_t)
MOED_VECTOR_TYPES(float, float)
#undef MOED_VECTOR_TYPES

struct alignas(16) double2 {
  double x, y;
};
constexpr double2 make_double2(double x, double y) { return {x, y}; }

}  // namespace emulated
}  // namespace moed
