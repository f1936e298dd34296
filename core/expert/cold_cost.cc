#include "core/expert/cold_cost.h"

#include <algorithm>
#include <cmath>

namespace moed {
namespace {

constexpr int64_t kLeastReadNanos = 100'000'000;

}  // namespace

std::optional<double> ColdSeconds(const ColdModel& model, const ExpertStats& stats, int tokens) {
  if (model.experts <= 0 || stats.read_busy_nanos < kLeastReadNanos) return std::nullopt;
  double read = 0;
  for (const auto& by_reason : stats.load_bytes) {
    for (const uint64_t bytes : by_reason) read += static_cast<double>(bytes);
  }
  if (read <= 0) return std::nullopt;
  const double met = 1 - std::pow(1 - static_cast<double>(model.top_k) / model.experts, tokens);
  const double in_memory = static_cast<double>(stats.cache_bytes + stats.device.bytes);
  const double missing = met * static_cast<double>(model.expert_bytes) - in_memory;
  return std::max(0., missing) * model.stored_share * static_cast<double>(stats.read_busy_nanos) * 1e-9 / read;
}

}  // namespace moed
