#include "core/expert/cache/prefetch_pace.h"

#include <algorithm>

namespace moed {
namespace {

constexpr double kMemory = 1.0 / 64;  // weight of the newest measurement
constexpr double kMargin = 0.05;
constexpr double kLeast = 0.2;
constexpr double kMost = 0.97;            // beyond it guesses are too rare to be worth their computation
constexpr double kRareMisses = 1.0 / 64;  // per layer step: with fewer there is nothing to gain
constexpr double kDistrustPerFailure = 0.04;
constexpr double kDistrustPerSuccess = 0.01;
constexpr double kDistrustPerLayer = 0.0005;

void Average(double& average, double value) { average += (value - average) * kMemory; }

}  // namespace

void PrefetchPace::OnLayer(int64_t now_nanos, bool missing, Gap after) {
  if (free_since_nanos_ >= 0 && record_nanos_ > 0) {
    const double free = std::min(static_cast<double>(now_nanos - free_since_nanos_), record_nanos_);
    if (free_nanos_[after] == kUnknown) free_nanos_[after] = free;
    Average(free_nanos_[after], free);
  }
  free_since_nanos_ = now_nanos;
  Average(missing_, missing ? 1 : 0);
  distrust_ = std::max(0.0, distrust_ - kDistrustPerLayer);
}

void PrefetchPace::OnRecordRead(int64_t busy_nanos) {
  const auto nanos = static_cast<double>(busy_nanos - busy_nanos_);
  busy_nanos_ = busy_nanos;
  if (record_nanos_ == 0) record_nanos_ = nanos;
  Average(record_nanos_, nanos);
}

double PrefetchPace::Asked(Gap in) const {
  const double free = std::min(free_nanos_[in], record_nanos_);
  const double waits = std::min(record_nanos_ - free, behind_ * record_nanos_);
  return waits > 0 ? waits / (free + waits) : 0;
}

void PrefetchPace::OnOutcome(bool useful) {
  Average(useful_, useful ? 1 : 0);
  distrust_ = std::clamp(distrust_ + (useful_ < Asked(kWithinToken) ? kDistrustPerFailure : -kDistrustPerSuccess), 0.0, 1.0);
}

float PrefetchPace::LeastProbability(Gap in) const {
  if (record_nanos_ == 0 || free_nanos_[in] == kUnknown || missing_ < kRareMisses) return kNever;
  const double least = std::max(kLeast, Asked(in) + kMargin) + (in == kWithinToken ? distrust_ : 0);
  return least > kMost ? kNever : static_cast<float>(least);
}

}  // namespace moed
