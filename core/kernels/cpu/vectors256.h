// 256-bit vectors: lane r is row r of one panel. Internal linkage, see block_matmul.h.
#pragma once

#include <immintrin.h>
#include <stdint.h>

#include "core/quant/byte_scale.h"
#include "core/quant/fp8.h"

namespace moed {
namespace {

struct Vectors256 {
  using Ints = __m256i;
  using Floats = __m256;
  static constexpr int kPanels = 1;
  static constexpr int kBlocksAhead = 0;  // to prefetch where a tile has several tokens; 0 leaves it to the processor

  static inline Ints Load(const unsigned char* at, int64_t) { return _mm256_loadu_si256(reinterpret_cast<const Ints*>(at)); }
  // Keeps the compiler from loading a second time what is used twice.
  static inline Ints Once(Ints a) {
    asm("" : "+x"(a));
    return a;
  }
  // Sixteen bytes, every eight of them twice.
  static inline Ints LoadTwice(const unsigned char* at, int64_t) {
    const __m128i sixteen = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    return _mm256_permute4x64_epi64(_mm256_castsi128_si256(sixteen), 0x50);
  }
  static inline void Store(unsigned char* at, Ints a) { _mm256_store_si256(reinterpret_cast<Ints*>(at), a); }
  static inline Floats LoadHalves(const unsigned char* at, int64_t) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  static inline Floats LoadFloats(const unsigned char* at, int64_t) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(at));
  }
  // The upper halves of floats, the lower ones being zero.
  static inline Floats LoadUpperHalves(const unsigned char* at, int64_t) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  // Four bytes in every lane.
  static inline Ints Group(const unsigned char* at) {
    int32_t group;
    __builtin_memcpy(&group, at, 4);
    return _mm256_set1_epi32(group);
  }
  static inline Floats Broadcast(const unsigned char* at) { return _mm256_broadcast_ss(reinterpret_cast<const float*>(at)); }
  // One float for all rows of a panel.
  static inline Floats BroadcastInPanel(const unsigned char* at, int64_t) { return Broadcast(at); }
  // Four floats, of which Lane<i> puts the i-th in every lane: fewer loads than Broadcast.
  static inline Floats Four(const unsigned char* at) { return _mm256_broadcast_ps(reinterpret_cast<const __m128*>(at)); }
  template <int kLane>
  static inline Floats Lane(Floats four) {
    return _mm256_permute_ps(four, 0x55 * kLane);
  }

  static inline Ints And(Ints a, char bits) { return _mm256_and_si256(a, _mm256_set1_epi8(bits)); }
  // A byte of every row, in the lowest of its lane.
  static inline Ints LoadBytes(const unsigned char* at, int64_t) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
  }
  static inline Ints LoadSignedBytes(const unsigned char* at, int64_t) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
  }
  // The entry of the table of 16 for every byte, 0 to 15.
  static inline Ints Lookup(const int8_t* table, Ints a) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table))), a);
  }
  static inline Ints Gather(const uint32_t* rows, Ints a) {
    return _mm256_i32gather_epi32(reinterpret_cast<const int*>(rows), a, 4);
  }
  // 2^(e - 128), e in 0..255.
  static inline Floats Exponents(Ints e) {
    const Ints normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const Ints subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(1 << 21), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, subnormal, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
  }

  // Sixteen bytes for four rows each: the low nibbles' for rows 0 to 3, the high ones' for rows 4 to 7.
  static inline Ints LoadHalfPlane(const unsigned char* at, int64_t) {
    const Ints both = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
    return _mm256_blend_epi32(both, _mm256_srli_epi16(both, 4), 0xf0);
  }
  // Of a byte, see quant/byte_scale.h.
  static inline Floats ByteScales(Ints bytes) {
    const Ints upper = _mm256_add_epi32(bytes, _mm256_set1_epi32(quant::kByteScaleBias));
    return _mm256_castsi256_ps(_mm256_slli_epi32(upper, quant::kByteScaleShift));
  }

  // e4m3, see quant/fp8.h.
  static inline Floats E4m3(Ints codes) {
    const Ints sign = _mm256_and_si256(_mm256_slli_epi32(codes, 24), _mm256_set1_epi32(INT32_MIN));
    const Ints magnitude = _mm256_and_si256(_mm256_slli_epi32(codes, 20), _mm256_set1_epi32(0x07f00000));
    return _mm256_mul_ps(_mm256_castsi256_ps(_mm256_or_si256(sign, magnitude)), _mm256_set1_ps(quant::kE4m3Shift));
  }
  static inline Floats UnsignedE4m3(Ints codes) {
    return _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(codes, 20)), _mm256_set1_ps(quant::kE4m3Shift));
  }

  static inline Ints Xor(Ints a, Ints b) { return _mm256_xor_si256(a, b); }
  static inline Ints Xor(Ints a, int bits) { return _mm256_xor_si256(a, _mm256_set1_epi8(static_cast<char>(bits))); }
  static inline Ints Or(Ints a, Ints b) { return _mm256_or_si256(a, b); }
  static inline Ints ShiftLeft(Ints a, int bits) { return _mm256_slli_epi16(a, bits); }
  static inline Ints ShiftRight(Ints a, int bits) { return _mm256_srli_epi16(a, bits); }
  // The first, third, ... eight bytes by `first` bits, the others by `second`.
  static inline Ints ShiftRightInTurns(Ints a, int first, int second) {
    return _mm256_srlv_epi64(a, _mm256_setr_epi64x(first, second, first, second));
  }

  static inline Floats Splat(float x) { return _mm256_set1_ps(x); }
  static inline Floats Zero() { return _mm256_setzero_ps(); }
  static inline Floats ToFloats(Ints a) { return _mm256_cvtepi32_ps(a); }
  static inline Floats Add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static inline Floats Multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static inline Floats MultiplyAdd(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static inline Floats MultiplySubtract(Floats a, Floats b, Floats c) { return _mm256_fnmadd_ps(a, b, c); }  // c - a b

  static inline Ints FirstRows(int64_t rows) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(rows)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static inline Floats LoadRows(const float* at, int64_t rows) {
    return rows >= 8 ? _mm256_loadu_ps(at) : _mm256_maskload_ps(at, FirstRows(rows));
  }
  static inline void StoreRows(float* at, int64_t rows, Floats x) {
    if (rows >= 8) {
      _mm256_storeu_ps(at, x);
    } else {
      _mm256_maskstore_ps(at, FirstRows(rows), x);
    }
  }
};

// With an instruction that adds four products of unsigned and signed bytes to each 32-bit lane.
template <__m256i (*kDot)(__m256i, __m256i, __m256i)>
struct Vnni256 : Vectors256 {
  template <bool kBiased, int kLargest, int kSteps>
  struct Accumulator {
    Ints dot;
    static inline Ints Operand(Ints w) { return w; }
    inline void Start(const unsigned char* term) { dot = kBiased ? Group(term) : _mm256_setzero_si256(); }
    inline void Add(Ints w, Ints x, int) { dot = kDot(dot, w, x); }
    inline Ints Sum(const unsigned char*) const { return dot; }
  };
};

}  // namespace
}  // namespace moed
