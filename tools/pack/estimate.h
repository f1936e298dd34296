// How long a pack will take, from encoding a small part of it.
#pragma once

#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/executor.h"
#include "tools/pack/moments.h"
#include "tools/pack/plan.h"

namespace moed {

// Reading and encoding; writing comes on top where the disk is slower than that.
absl::StatusOr<double> EstimateSeconds(const PackPlan& plan, Executor& executor, const Clock& clock,
                                       const ExpertMoments* moments = nullptr);

}  // namespace moed
