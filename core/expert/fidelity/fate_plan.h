// Fate, arXiv 2502.12224, 4.4 and 4.5: what is measured offline for one model, from a file of moed-plan fate.
//   {"model_hash": "<16 hexadecimal digits>", "prefill_low": <p, 0 to 1>, "shallow_layers": <L, MoE layers>}
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace moed {

struct FatePlan {
  double prefill_low = 0;  // p: option fate-prefill-low
  int shallow_layers = 0;  // L: option fate-shallow-layers
};

// INVALID_ARGUMENT names the file: unreadable, no such JSON, of another model, a number out of range.
absl::StatusOr<FatePlan> ReadFatePlan(const std::string& path, uint64_t model_hash, int layers);

}  // namespace moed
