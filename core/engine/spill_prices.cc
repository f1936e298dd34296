#include "core/engine/spill_prices.h"

namespace moed {
namespace {

constexpr int kTries = 16;  // one of so many answers is another one

}  // namespace

void SpillPrices::Price::OnSeen(double units, int64_t nanos) {
  if (units <= 0) return;
  const double seen = static_cast<double>(nanos) / units;
  value_ += (seen - value_) * (known_ ? units / (units + memory_) : 1);
  known_ = true;
}

bool SpillPrices::ReadingPays(uint64_t bytes, int tokens) {
  const Price& reading = read_.known() ? read_ : written_;
  if (!reading.known() || !prefill_.known()) return true;
  if (static_cast<double>(bytes) * reading.value() <= tokens * prefill_.value()) return true;
  return ++declined_ % kTries == 0;
}

void SpillPrices::OnRead(uint64_t bytes, int64_t nanos) { read_.OnSeen(static_cast<double>(bytes), nanos); }
void SpillPrices::OnWritten(uint64_t bytes, int64_t nanos) { written_.OnSeen(static_cast<double>(bytes), nanos); }
void SpillPrices::OnPrefill(int tokens, int64_t nanos) { prefill_.OnSeen(tokens, nanos); }

}  // namespace moed
