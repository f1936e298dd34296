#include "core/machine/memory_read.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>

#include "core/base/buffer.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/kernels/backend.h"

namespace moed {
namespace {

constexpr int kSums = 8;

// Several streams read as many stretches of the same length side by side.
template <int kStreams>
uint64_t ReadWords(const std::byte* data, size_t bytes) {
  uint64_t sums[kSums] = {};
  const size_t words = bytes / kStreams / sizeof(uint64_t);
  const auto* from = reinterpret_cast<const uint64_t*>(data);
  for (size_t i = 0; i < words; i += kSums) {
    for (int s = 0; s < kStreams; ++s) {
      for (int lane = 0; lane < kSums; ++lane) sums[lane] += from[s * words + i + lane];
    }
  }
  for (int lane = 1; lane < kSums; ++lane) sums[0] += sums[lane];
  return sums[0];
}

#if defined(__x86_64__)

template <int kStreams>
__attribute__((target("avx2"))) uint64_t Read256(const std::byte* data, size_t bytes) {
  __m256i sums[2] = {};
  const size_t stretch = bytes / kStreams;
  for (size_t i = 0; i < stretch; i += 64) {
    for (int s = 0; s < kStreams; ++s) {
      const auto* line = reinterpret_cast<const __m256i*>(data + s * stretch + i);
      sums[0] = _mm256_add_epi64(sums[0], _mm256_load_si256(line));
      sums[1] = _mm256_add_epi64(sums[1], _mm256_load_si256(line + 1));
    }
  }
  return static_cast<uint64_t>(_mm256_extract_epi64(_mm256_add_epi64(sums[0], sums[1]), 0));
}

template <int kStreams>
__attribute__((target("avx512f"))) uint64_t Read512(const std::byte* data, size_t bytes) {
  using Words = uint64_t __attribute__((vector_size(64)));
  Words sum = {};
  const size_t stretch = bytes / kStreams;
  for (size_t i = 0; i < stretch; i += sizeof(Words)) {
    for (int s = 0; s < kStreams; ++s) sum += *reinterpret_cast<const Words*>(data + s * stretch + i);
  }
  return sum[0];
}

#endif

constexpr MemoryRead kReads[] = {
    {"words/streams:1", "scalar", ReadWords<1>},      {"words/streams:4", "scalar", ReadWords<4>},
#if defined(__x86_64__)
    {"256_bit/streams:1", "avx2", Read256<1>},        {"256_bit/streams:2", "avx2", Read256<2>},
    {"256_bit/streams:4", "avx2", Read256<4>},        {"512_bit/streams:1", "avx512-vnni", Read512<1>},
    {"512_bit/streams:2", "avx512-vnni", Read512<2>}, {"512_bit/streams:4", "avx512-vnni", Read512<4>},
#endif
};

}  // namespace

std::span<const MemoryRead> MemoryReads() { return kReads; }

bool Runs(std::string_view backend) {
  InlineExecutor executor;
  return MakeComputeBackend(backend, executor).ok();
}

double ReadRate(const MemoryRead& read, Executor& executor, std::span<const std::byte> memory) {
  std::atomic<uint64_t> sum{0};
  const int64_t start = Clock::Real().NowNanos();
  executor.ParallelFor(static_cast<int>(memory.size() / kReadPieceBytes), 1, [&](int begin, int end) {
    for (int i = begin; i < end; ++i) sum += read.run(memory.data() + static_cast<size_t>(i) * kReadPieceBytes, kReadPieceBytes);
  });
  const double seconds = SecondsBetween(start, Clock::Real().NowNanos());
  [[maybe_unused]] static volatile uint64_t keep;  // the sums are wanted
  keep = sum.load();
  return static_cast<double>(memory.size()) / seconds * 1e-9;
}

const MemoryRead& BestRead(Executor& executor, std::span<const std::byte> memory) {
  constexpr int kPasses = 5;
  const MemoryRead* best = nullptr;
  double best_rate = 0;
  for (const MemoryRead& read : MemoryReads()) {
    if (!Runs(read.backend)) continue;
    std::array<double, kPasses> rates;
    for (double& rate : rates) rate = ReadRate(read, executor, memory);
    std::sort(rates.begin(), rates.end());
    if (rates[kPasses / 2] <= best_rate) continue;
    best_rate = rates[kPasses / 2];
    best = &read;
  }
  return *best;
}

absl::StatusOr<MemoryBandwidth> MeasureMemoryBandwidth(int threads, size_t bytes) {
  const size_t rounded = std::max<size_t>(bytes / kReadPieceBytes, 1) * kReadPieceBytes;
  MOED_ASSIGN_OR_RETURN(const Buffer memory, Buffer::Allocate(rounded));
  std::memset(memory.data(), 1, memory.size());
  const std::unique_ptr<Executor> executor = MakeThreadPool(threads);
  const MemoryRead& best = BestRead(*executor, memory.span());
  constexpr int kPasses = 7;
  std::array<double, kPasses> rates;
  for (double& rate : rates) rate = ReadRate(best, *executor, memory.span());
  std::sort(rates.begin(), rates.end());
  return MemoryBandwidth{rates[kPasses / 2] * 1e9, best.name, threads, rounded};
}

}  // namespace moed
