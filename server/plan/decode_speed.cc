#include "server/plan/decode_speed.h"

#include <algorithm>
#include <cmath>

namespace moed {
namespace {

constexpr HitPoint kUniform[] = {{1, 1}};
constexpr HitPoint kDemo[] = {{0.036, 0.102}, {0.125, 0.373}, {0.192, 0.476}, {0.317, 0.622},
                              {0.486, 0.771}, {0.661, 0.889}, {0.839, 0.968}, {1, 1}};
constexpr HitPoint kGptOss[] = {{0.1, 0.445}, {0.25, 0.728}, {0.5, 0.930}, {1, 1}};

// Of `count` independent events of the same probability.
double BinomialProbability(int count, int happen, double probability) {
  double chosen = 1;
  for (int i = 0; i < happen; ++i) chosen *= static_cast<double>(count - i) / (i + 1);
  return chosen * std::pow(probability, happen) * std::pow(1 - probability, count - happen);
}

}  // namespace

double HitCurve::At(double share) const {
  HitPoint before;
  for (const HitPoint& point : points) {
    if (share <= point.share) {
      return before.hits + (point.hits - before.hits) * (share - before.share) / (point.share - before.share);
    }
    before = point;
  }
  return 1;
}

const HitCurve& UniformRouting() {
  static constexpr HitCurve kCurve = {"uniform", "every expert equally likely, whatever came before", kUniform};
  return kCurve;
}

const HitCurve& DemoRouting() {
  static constexpr HitCurve kCurve = {"demo", "measured on the demo model", kDemo};
  return kCurve;
}

const HitCurve& GptOssRouting() {
  static constexpr HitCurve kCurve = {"gpt-oss-20b", "its recorded routing replayed", kGptOss};
  return kCurve;
}

DecodeSpeed ExpectDecode(const DecodeWork& work, double product_seconds, const DiskRead& disk, double hit_ratio) {
  DecodeSpeed speed{.hit_ratio = hit_ratio};
  speed.compute_seconds = product_seconds + work.layers * kLayerSeconds + work.vocabulary * kLogitSeconds + kTokenSeconds;
  if (work.moe_layers == 0) return speed;
  const double beside = speed.compute_seconds / work.moe_layers;
  double layer = 0;
  const double overlap = work.cache_records > static_cast<uint64_t>(work.top_k) ? kOverlap : 0;
  for (int missing = 1; missing <= work.top_k; ++missing) {
    const double at_once = std::min(static_cast<double>(missing), std::max(1.0, static_cast<double>(work.cache_records)));
    const double read = missing / at_once * disk.Seconds(at_once) * work.record_scale;
    layer += BinomialProbability(work.top_k, missing, 1 - hit_ratio) * (read - overlap * std::min(read, beside));
  }
  speed.waiting_seconds = work.moe_layers * layer;
  speed.read_bytes = work.moe_layers * work.top_k * (1 - hit_ratio) * static_cast<double>(disk.block_bytes) * work.record_scale;
  return speed;
}

}  // namespace moed
