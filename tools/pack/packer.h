// Carries out a plan: encodes what the store does not have yet and writes it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/executor.h"
#include "core/store/writer.h"
#include "tools/pack/encoding_error.h"
#include "tools/pack/moments.h"
#include "tools/pack/plan.h"
#include "tools/terminal/progress.h"

namespace moed {

// RESOURCE_EXHAUSTED when the file system of `path` has less room than the store still needs, what an unfinished pack of `path`
// already takes counted in.
absl::Status CheckFreeSpace(const std::string& path, uint64_t file_bytes);

// Of what this run encoded; the first panel of every piece of a matrix is looked at.
struct EncodingErrors {
  EncodingError trunk;
  std::vector<std::array<EncodingError, kExpertParts>> experts;  // [precision]
};

// `writer` was opened with the plan's description and identity. CANCELLED after an interrupt, with everything that is finished
// journalled; any error leaves the unfinished pack to be resumed.
// `moments`: null where no encoding needs them (layer_feedback.h).
absl::StatusOr<EncodingErrors> Pack(const PackPlan& plan, StoreWriter& writer, Executor& executor, Progress& progress,
                                    const ExpertMoments* moments = nullptr);

}  // namespace moed
