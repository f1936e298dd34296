#include "bench/machine_limits_int8.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace moed {
namespace {

#if defined(__x86_64__)

constexpr int kChains = 8;  // independent sums, so that no instruction waits for the one before

// Zeros that the compiler does not know to be the same, and sums that it has to make.
template <class Vector>
inline __attribute__((always_inline)) void Start(Vector (&sums)[kChains]) {
  alignas(64) static constexpr unsigned char kZeros[sizeof(sums)] = {};
  const unsigned char* from = kZeros;
  asm volatile("" : "+r"(from));
  __builtin_memcpy(sums, from, sizeof(sums));
}
template <class Vector>
inline __attribute__((always_inline)) void Keep(Vector (&sums)[kChains]) {
  asm volatile("" : : "r"(sums) : "memory");
}

__attribute__((target("avx2"))) void UnsignedPairs(int64_t iterations) {
  __m256i w = _mm256_set1_epi8(1), x = _mm256_set1_epi8(2), sums[kChains];
  Start(sums);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 8
    for (__m256i& sum : sums) {
      asm volatile("" : "+x"(w), "+x"(x));
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x));
    }
  }
  Keep(sums);
}

__attribute__((target("avx2"))) void NibblePairs(int64_t iterations) {
  __m256i low = _mm256_set1_epi8(1), high = _mm256_set1_epi8(3), x = _mm256_set1_epi8(2), sums[kChains];
  Start(sums);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 4
    for (int c = 0; c < kChains; c += 2) {
      asm volatile("" : "+x"(low), "+x"(high), "+x"(x));
      sums[c] = _mm256_add_epi16(sums[c], _mm256_maddubs_epi16(low, x));
      sums[c + 1] = _mm256_add_epi16(sums[c + 1], _mm256_maddubs_epi16(high, x));
    }
  }
  Keep(sums);
}

__attribute__((target("avxvnni"))) void Dots256(int64_t iterations) {
  __m256i w = _mm256_set1_epi8(1), x = _mm256_set1_epi8(2), sums[kChains];
  Start(sums);
  for (int64_t i = 0; i < iterations; ++i) {
    asm volatile("" : "+x"(w), "+x"(x));
#pragma GCC unroll 8
    for (__m256i& sum : sums) sum = _mm256_dpbusd_avx_epi32(sum, w, x);
  }
  Keep(sums);
}

__attribute__((target("avx512f,avx512vnni"))) void Dots512(int64_t iterations) {
  __m512i w = _mm512_set1_epi32(0x01010101), x = _mm512_set1_epi32(0x02020202), sums[kChains];
  Start(sums);
  for (int64_t i = 0; i < iterations; ++i) {
    asm volatile("" : "+v"(w), "+v"(x));
#pragma GCC unroll 8
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, w, x);
  }
  Keep(sums);
}

// Of 32 columns, as many as share a scale: half of what a tile holds, in the same time.
constexpr int kTileRows = 16, kTileColumns = 32;
__attribute__((target("amx-tile,amx-int8"))) void TileProducts(int64_t iterations) {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, kTileColumns, 64};
    uint8_t rows[16] = {kTileRows, kTileRows, kTileRows, kTileRows, kTileRows, kTileColumns / 4};
  } shapes;
  asm volatile("" : : "r"(&shapes) : "memory");
  _tile_loadconfig(&shapes);
  for (int64_t i = 0; i < iterations; ++i) {
    _tile_dpbssd(0, 4, 5);
    _tile_dpbssd(1, 4, 5);
    _tile_dpbssd(2, 4, 5);
    _tile_dpbssd(3, 4, 5);
  }
  _tile_release();
}
constexpr int kTileProducts = 4 * kTileRows * kTileRows * kTileColumns;

constexpr Int8Loop kLoops[] = {
    {"avx2", FormatId::kQ8, "vpmaddubsw of two nibbles, vpaddw", 32 * kChains / 2, NibblePairs},
    {"avx2", FormatId::kQ4, "vpmaddubsw, vpaddw", 32 * kChains, UnsignedPairs},
    {"avx2", FormatId::kQ2, "vpmaddubsw, vpaddw", 32 * kChains, UnsignedPairs},
    {"avx2", FormatId::kQ4A, "vpmaddubsw, vpaddw", 32 * kChains, UnsignedPairs},
    {"avx2", FormatId::kQ3, "vpmaddubsw, vpaddw", 32 * kChains, UnsignedPairs},
    {"avx-vnni", FormatId::kQ8, "vpdpbusd ymm", 32 * kChains, Dots256},
    {"avx-vnni", FormatId::kQ4, "vpdpbusd ymm", 32 * kChains, Dots256},
    {"avx-vnni", FormatId::kQ2, "vpdpbusd ymm", 32 * kChains, Dots256},
    {"avx-vnni", FormatId::kQ4A, "vpdpbusd ymm", 32 * kChains, Dots256},
    {"avx-vnni", FormatId::kQ3, "vpdpbusd ymm", 32 * kChains, Dots256},
    {"avx512-vnni", FormatId::kQ8, "vpdpbusd zmm", 64 * kChains, Dots512},
    {"avx512-vnni", FormatId::kQ4, "vpdpbusd zmm", 64 * kChains, Dots512},
    {"avx512-vnni", FormatId::kQ2, "vpdpbusd zmm", 64 * kChains, Dots512},
    {"avx512-vnni", FormatId::kQ4A, "vpdpbusd zmm", 64 * kChains, Dots512},
    {"avx512-vnni", FormatId::kQ3, "vpdpbusd zmm", 64 * kChains, Dots512},
    {"amx-int8", FormatId::kQ8, "tdpbssd of 32 columns", kTileProducts, TileProducts},
    {"amx-int8", FormatId::kQ4, "tdpbssd of 32 columns", kTileProducts, TileProducts},
    {"amx-int8", FormatId::kQ2, "tdpbssd of 32 columns", kTileProducts, TileProducts},
    {"amx-int8", FormatId::kQ4A, "tdpbssd of 32 columns", kTileProducts, TileProducts},
    {"amx-int8", FormatId::kQ3, "tdpbssd of 32 columns", kTileProducts, TileProducts},
};
std::span<const Int8Loop> Loops() { return kLoops; }

#else

std::span<const Int8Loop> Loops() { return {}; }

#endif

}  // namespace

std::span<const Int8Loop> Int8Loops() { return Loops(); }

const Int8Loop* FindInt8Loop(std::string_view backend, FormatId format) {
  for (const Int8Loop& loop : Loops()) {
    if (loop.backend == backend && loop.format == format) return &loop;
  }
  return nullptr;
}

}  // namespace moed
