// 512-bit vectors of two panels side by side: lane r is row r of the first, lane 8 + r of the second. Internal linkage, see
// block_matmul.h.
#pragma once

#include <immintrin.h>
#include <stdint.h>

#include "core/kernels/cpu/vectors256.h"
#include "core/quant/byte_scale.h"
#include "core/quant/fp8.h"

namespace moed {
namespace {

struct Vnni512 {
  using Ints = __m512i;
  using Floats = __m512;
  static constexpr int kPanels = 2;
  static constexpr int kBlocksAhead = 0;

  static inline Ints Load(const unsigned char* at, int64_t panel_bytes) {
    const __m256i first = Vectors256::Load(at, 0);
    return _mm512_inserti64x4(_mm512_castsi256_si512(first), Vectors256::Load(at + panel_bytes, 0), 1);
  }
  static inline Ints Once(Ints a) { return a; }  // every load is two
  static inline Ints LoadTwice(const unsigned char* at, int64_t panel_bytes) {
    const __m512i all = _mm512_castsi256_si512(LoadHalfwords(at, panel_bytes));
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3), all);
  }
  static inline void Store(unsigned char* at, Ints a) { _mm512_store_si512(at, a); }
  static inline Floats LoadFloats(const unsigned char* at, int64_t panel_bytes) {
    return _mm512_castsi512_ps(Load(at, panel_bytes));
  }
  // Eight halfwords of each panel.
  static inline __m256i LoadHalfwords(const unsigned char* at, int64_t panel_bytes) {
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const __m128i second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + panel_bytes));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
  }
  static inline Floats LoadHalves(const unsigned char* at, int64_t panel_bytes) {
    return _mm512_cvtph_ps(LoadHalfwords(at, panel_bytes));
  }
  static inline Floats LoadUpperHalves(const unsigned char* at, int64_t panel_bytes) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(LoadHalfwords(at, panel_bytes)), 16));
  }
  static inline Ints Group(const unsigned char* at) {
    int32_t group;
    __builtin_memcpy(&group, at, 4);
    return _mm512_set1_epi32(group);
  }
  static inline Floats Broadcast(const unsigned char* at) { return _mm512_castsi512_ps(Group(at)); }
  static inline Floats BroadcastInPanel(const unsigned char* at, int64_t panel_bytes) {
    const __m256i first = Vectors256::Group(at);
    return _mm512_castsi512_ps(_mm512_inserti64x4(_mm512_castsi256_si512(first), Vectors256::Group(at + panel_bytes), 1));
  }

  static inline Ints And(Ints a, char bits) { return _mm512_and_si512(a, _mm512_set1_epi8(bits)); }
  static inline __m128i LoadSixteen(const unsigned char* at, int64_t panel_bytes) {
    const __m128i first = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
    const __m128i second = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at + panel_bytes));
    return _mm_unpacklo_epi64(first, second);
  }
  static inline Ints LoadBytes(const unsigned char* at, int64_t panel_bytes) {
    return _mm512_cvtepu8_epi32(LoadSixteen(at, panel_bytes));
  }
  static inline Ints LoadSignedBytes(const unsigned char* at, int64_t panel_bytes) {
    return _mm512_cvtepi8_epi32(LoadSixteen(at, panel_bytes));
  }
  static inline Ints Lookup(const int8_t* table, Ints a) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table))), a);
  }
  static inline Ints Gather(const uint32_t* rows, Ints a) { return _mm512_i32gather_epi32(a, rows, 4); }
  static inline Floats Exponents(Ints e) {
    const Ints normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __mmask16 subnormal = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, subnormal, _mm512_set1_epi32(1 << 21), e));
  }

  static inline Ints LoadHalfPlane(const unsigned char* at, int64_t panel_bytes) {
    const __m256i first = Vectors256::LoadHalfPlane(at, 0);
    return _mm512_inserti64x4(_mm512_castsi256_si512(first), Vectors256::LoadHalfPlane(at + panel_bytes, 0), 1);
  }
  static inline Floats ByteScales(Ints bytes) {
    const Ints upper = _mm512_add_epi32(bytes, _mm512_set1_epi32(quant::kByteScaleBias));
    return _mm512_castsi512_ps(_mm512_slli_epi32(upper, quant::kByteScaleShift));
  }

  static inline Floats E4m3(Ints codes) {
    const Ints sign = _mm512_and_si512(_mm512_slli_epi32(codes, 24), _mm512_set1_epi32(INT32_MIN));
    const Ints magnitude = _mm512_and_si512(_mm512_slli_epi32(codes, 20), _mm512_set1_epi32(0x07f00000));
    return _mm512_mul_ps(_mm512_castsi512_ps(_mm512_or_si512(sign, magnitude)), _mm512_set1_ps(quant::kE4m3Shift));
  }
  static inline Floats UnsignedE4m3(Ints codes) {
    return _mm512_mul_ps(_mm512_castsi512_ps(_mm512_slli_epi32(codes, 20)), _mm512_set1_ps(quant::kE4m3Shift));
  }

  static inline Ints Xor(Ints a, Ints b) { return _mm512_xor_si512(a, b); }
  static inline Ints Xor(Ints a, int bits) { return _mm512_xor_si512(a, _mm512_set1_epi8(static_cast<char>(bits))); }
  static inline Ints Or(Ints a, Ints b) { return _mm512_or_si512(a, b); }
  static inline Ints ShiftLeft(Ints a, int bits) { return _mm512_slli_epi16(a, bits); }
  static inline Ints ShiftRight(Ints a, int bits) { return _mm512_srli_epi16(a, bits); }
  static inline Ints ShiftRightInTurns(Ints a, int first, int second) {
    return _mm512_srlv_epi64(a, _mm512_set4_epi64(second, first, second, first));
  }

  static inline Floats Splat(float x) { return _mm512_set1_ps(x); }
  static inline Floats Zero() { return _mm512_setzero_ps(); }
  static inline Floats ToFloats(Ints a) { return _mm512_cvtepi32_ps(a); }
  static inline Floats Add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static inline Floats Multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static inline Floats MultiplyAdd(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static inline Floats MultiplySubtract(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }

  static inline __mmask16 FirstRows(int64_t rows) { return rows >= 16 ? 0xffff : static_cast<__mmask16>((1u << rows) - 1); }
  static inline Floats LoadRows(const float* at, int64_t rows) { return _mm512_maskz_loadu_ps(FirstRows(rows), at); }
  static inline void StoreRows(float* at, int64_t rows, Floats x) { _mm512_mask_storeu_ps(at, FirstRows(rows), x); }

  template <bool kBiased, int kLargest, int kSteps>
  struct Accumulator {
    Ints dot;
    static inline Ints Operand(Ints w) { return w; }
    inline void Start(const unsigned char* term) { dot = kBiased ? Group(term) : _mm512_setzero_si512(); }
    inline void Add(Ints w, Ints x, int) { dot = _mm512_dpbusd_epi32(dot, w, x); }
    inline Ints Sum(const unsigned char*) const { return dot; }
  };
};

}  // namespace
}  // namespace moed
