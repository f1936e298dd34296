// How fast one sequence will be decoded, from what the machine gives and what a token needs. Per token, at short contexts:
//
//   compute  = products + layers * kLayerSeconds + vocabulary * kLogitSeconds + kTokenSeconds
//              products: every matrix that a token reads, trunk and top-k experts of each layer, as the kernels read them from
//              memory: bytes / (the memory's bandwidth * the kernels' share of it)
//   waiting  = sum over layers with experts of E[read(m)] - kOverlap * E[min(read(m), compute / layers with experts)]
//              m: experts that are not in memory, binomial of top-k with the probability 1 - hit ratio
//              read(m): seconds for m records that are asked for together, a straight line through those for one and for many;
//              a cache with room for n < m of them reads n after n
//              where the cache holds no more than top-k records, nothing is hidden
//   tokens/s = 1 / (compute + waiting)
//
// Of the second term the daemon hides what it reads beside computing: guesses beside the layer before, misses beside the experts
// that are there.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/machine/disk_read.h"

namespace moed {

inline constexpr double kLayerSeconds = 9e-6;
inline constexpr double kLogitSeconds = 7e-9;  // of sampling
inline constexpr double kTokenSeconds = 120e-6;
inline constexpr double kOverlap = 0.5;

// Hit ratio of decoding by the share of the experts that the cache holds, once it is warm; between the points on straight lines,
// from (0, 0) to (1, 1).
struct HitPoint {
  double share = 0;
  double hits = 0;
};
struct HitCurve {
  std::string_view name;
  std::string_view origin;
  std::span<const HitPoint> points;  // ascending

  double At(double share) const;  // 0..1
};
// Experts that are all wanted equally often, whatever came before: nothing can be learned.
const HitCurve& UniformRouting();
// The demo model, one conversation after the other through the daemon with its defaults.
const HitCurve& DemoRouting();
// gpt-oss-20b's recorded routing of texts of many kinds, replayed through the default policy.
const HitCurve& GptOssRouting();

struct DecodeWork {
  int layers = 0;
  int moe_layers = 0;
  int top_k = 0;
  int vocabulary = 0;
  double record_scale = 1;     // mean record over the one that was measured
  uint64_t cache_records = 0;  // that the cache holds, at least one
};

struct DecodeSpeed {
  double hit_ratio = 0;
  double compute_seconds = 0;
  double waiting_seconds = 0;
  double read_bytes = 0;  // a token

  double TokensPerSecond() const { return 1 / (compute_seconds + waiting_seconds); }
};
// `product_seconds` > 0.
DecodeSpeed ExpectDecode(const DecodeWork& work, double product_seconds, const DiskRead& disk, double hit_ratio);

}  // namespace moed
