#include "tools/pack/estimate.h"

#include <vector>

#include "core/base/status.h"
#include "tools/pack/encoder.h"

namespace moed {
namespace {

constexpr uint64_t kSampleWeights = 8 << 20;

struct Job {
  const SourceTensor* source;
  std::vector<MatrixTarget> targets;
};

uint64_t Weights(const Job& job) { return job.source->shape[0] * job.source->shape[1]; }

// Seconds for all jobs, measured on the first ones. The jobs have the same cost per weight.
absl::StatusOr<double> Extrapolate(const std::vector<Job>& jobs, TensorEncoder& encoder, const Clock& clock) {
  uint64_t total = 0, sampled = 0;
  for (const Job& job : jobs) total += Weights(job);
  const int64_t begin = clock.NowNanos();
  for (const Job& job : jobs) {
    if (sampled >= kSampleWeights) break;
    MOED_RETURN_IF_ERROR(encoder.EncodeMatrix(*job.source, job.targets, [](size_t, auto) { return absl::OkStatus(); }));
    sampled += Weights(job);
  }
  if (sampled == 0) return 0.0;
  return SecondsBetween(begin, clock.NowNanos()) * static_cast<double>(total) / static_cast<double>(sampled);
}

}  // namespace

absl::StatusOr<double> EstimateSeconds(const PackPlan& plan, Executor& executor, const Clock& clock) {
  std::vector<Job> trunk, experts;
  for (size_t i = 0; i < plan.trunk.size(); ++i) {
    if (!plan.description.trunk[i].vector) trunk.push_back({plan.trunk[i], {plan.trunk_targets[i]}});
  }
  for (size_t i = 0; i < plan.experts.size(); ++i) {
    const size_t layer = i / kExpertParts / static_cast<size_t>(plan.description.experts_per_layer);
    experts.push_back({plan.experts[i], plan.ExpertTargets(layer, static_cast<ExpertPart>(i % kExpertParts))});
  }
  TensorEncoder encoder(executor);
  MOED_ASSIGN_OR_RETURN(const double trunk_seconds, Extrapolate(trunk, encoder, clock));
  MOED_ASSIGN_OR_RETURN(const double expert_seconds, Extrapolate(experts, encoder, clock));
  return trunk_seconds + expert_seconds;
}

}  // namespace moed
