#include "core/expert/cache/cooperation.h"

#include <algorithm>

namespace moed {
namespace {

constexpr double kNewest = 0.125;  // what one measurement counts beside those before it

}  // namespace

void Cooperation::BeginLayer(int tokens) {
  tokens_ = tokens;
  bringing_seconds_ = computing_seconds_ = 0;
}

bool Cooperation::OnProcessor(uint64_t bytes, int tokens) {
  if (tokens_ > kMostTokensOfProcessor) return false;
  const double bring = bring_seconds_per_byte_ * static_cast<double>(bytes);
  const double compute = ComputeSecondsPerByte(tokens) * static_cast<double>(bytes);
  if (computing_seconds_ + compute > bringing_seconds_ + bring) {
    bringing_seconds_ += bring;
    return false;
  }
  computing_seconds_ += compute;
  return true;
}

void Cooperation::OnComputed(uint64_t bytes, int tokens, double seconds) {
  if (bytes == 0 || tokens < 1) return;
  double& price = compute_seconds_per_byte_[std::min(tokens, kMostTokensOfProcessor) - 1];
  const double measured = seconds / static_cast<double>(bytes);
  price = price == 0 ? measured : price + kNewest * (measured - price);
}

double Cooperation::ComputeSecondsPerByte(int tokens) const {
  const int wanted = std::clamp(tokens, 1, kMostTokensOfProcessor) - 1;
  for (int distance = 0; distance < kMostTokensOfProcessor; ++distance) {
    for (const int other : {wanted - distance, wanted + distance}) {
      if (other >= 0 && other < kMostTokensOfProcessor && compute_seconds_per_byte_[other] > 0)
        return compute_seconds_per_byte_[other];
    }
  }
  return 0;
}

}  // namespace moed
