#include "core/expert/cache/timing_meter.h"

#include <algorithm>

namespace moed {
namespace {

constexpr double kMemory = 1.0 / 32;  // weight of the newest measurement
constexpr int kReuseMemory = 256;     // records
constexpr uint64_t kFreshReads = 64;  // after as many of other precisions a price is forgotten

void Average(double& average, double value) { average = average == 0 ? value : average + (value - average) * kMemory; }

}  // namespace

void TimingMeter::OnLayer(int position, Phase phase, int64_t now_nanos, int64_t stalled_nanos) {
  const int64_t computed = now_nanos - stalled_nanos;
  // From one layer to the next of the same step: between steps anything may have happened.
  if (begun_ && begun_->position + 1 == position && begun_->phase == phase) {
    Average(averages_[EnumIndex(phase)].layer, static_cast<double>(computed - begun_->computed_nanos) * 1e-9);
  }
  begun_ = Moment{position, phase, computed};
}

void TimingMeter::OnExpertsDone(int64_t now_nanos, int64_t stalled_nanos) {
  if (!begun_) return;
  const int64_t computed = now_nanos - stalled_nanos - begun_->computed_nanos;
  Average(averages_[EnumIndex(begun_->phase)].experts, static_cast<double>(computed) * 1e-9);
}

void TimingMeter::OnRecordRead(Precision precision, int64_t busy_nanos) {
  const double seconds = static_cast<double>(busy_nanos - busy_nanos_) * 1e-9;
  busy_nanos_ = busy_nanos;
  ++reads_;
  if (!Fresh(precision)) read_seconds_[precision] = 0;
  Average(read_seconds_[precision], seconds);
  last_read_[precision] = reads_;
  Reprice();
}

// The mean of all at first: a prompt into an empty cache tells little of what will leave.
void TimingMeter::OnUsedAgain(bool again) {
  used_ = std::min(used_ + 1, kReuseMemory);
  reuse_ += (again - reuse_) / used_;
}

bool TimingMeter::Fresh(size_t precision) const {
  return last_read_[precision] > 0 && reads_ - last_read_[precision] <= kFreshReads;
}

void TimingMeter::Reprice() {
  double bytes = 0;
  double seconds = 0;
  for (size_t p = 0; p < last_read_.size(); ++p) {
    if (!Fresh(p)) continue;
    bytes += static_cast<double>(record_bytes_[p]);
    seconds += read_seconds_[p];
  }
  for (size_t p = 0; p < last_read_.size(); ++p) {
    if (!Fresh(p)) read_seconds_[p] = seconds * static_cast<double>(record_bytes_[p]) / bytes;
  }
}

Prices TimingMeter::prices(Phase phase) const {
  const Averages& averages = averages_[EnumIndex(phase)];
  Prices prices{{}, averages.layer, averages.experts, reuse_};
  if (reads_ > 0) prices.read_seconds = read_seconds_;
  return prices;
}

}  // namespace moed
