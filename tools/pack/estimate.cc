#include "tools/pack/estimate.h"

#include <vector>

#include "core/base/status.h"
#include "tools/pack/encoder.h"
#include "tools/pack/layer_feedback.h"

namespace moed {
namespace {

constexpr uint64_t kSampleWeights = 8 << 20;

uint64_t Weights(const MatrixJob& job) { return job.source->shape[0] * job.source->shape[1]; }

// Seconds for all jobs, measured on the first ones. The jobs have the same cost per weight.
absl::StatusOr<double> Extrapolate(const std::vector<MatrixJob>& jobs, TensorEncoder& encoder, const Clock& clock) {
  uint64_t total = 0, sampled = 0;
  for (const MatrixJob& job : jobs) total += Weights(job);
  const int64_t begin = clock.NowNanos();
  for (const MatrixJob& job : jobs) {
    if (sampled >= kSampleWeights) break;
    const auto drop = [](size_t, size_t, std::span<const std::byte>, const EncodingError&) { return absl::OkStatus(); };
    MOED_RETURN_IF_ERROR(encoder.EncodeMatrices({&job, 1}, drop));
    sampled += Weights(job);
  }
  if (sampled == 0) return 0.0;
  return SecondsBetween(begin, clock.NowNanos()) * static_cast<double>(total) / static_cast<double>(sampled);
}

}  // namespace

absl::StatusOr<double> EstimateSeconds(const PackPlan& plan, Executor& executor, const Clock& clock,
                                       const ExpertMoments* moments) {
  const int64_t begin = clock.NowNanos();
  const LayerFeedback feedback(plan, moments, 0, executor);
  const double layer_seconds = SecondsBetween(begin, clock.NowNanos());
  std::vector<MatrixJob> trunk, experts;
  for (size_t i = 0; i < plan.trunk.size(); ++i) {
    if (!plan.description.trunk[i].vector) trunk.push_back({plan.trunk[i], {plan.trunk_targets[i]}, nullptr});
  }
  for (size_t i = 0; i < plan.experts.size(); ++i) {
    const size_t layer = i / plan.parts.size() / static_cast<size_t>(plan.description.experts_per_layer);
    const ExpertPart part = plan.parts[i % plan.parts.size()];
    const int expert = static_cast<int>(i / plan.parts.size() % static_cast<size_t>(plan.description.experts_per_layer));
    MatrixJob& job = experts.emplace_back(MatrixJob{plan.experts[i], {}, feedback.Of(expert, part)});
    for (size_t p = 0; p < plan.description.precisions.size(); ++p) {
      job.targets.push_back(plan.ExpertTarget(p, layer, part));
    }
  }
  TensorEncoder encoder(executor);
  MOED_ASSIGN_OR_RETURN(const double trunk_seconds, Extrapolate(trunk, encoder, clock));
  MOED_ASSIGN_OR_RETURN(const double expert_seconds, Extrapolate(experts, encoder, clock));
  return trunk_seconds + expert_seconds + layer_seconds * static_cast<double>(plan.description.moe_layers.size());
}

}  // namespace moed
