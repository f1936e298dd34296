// The part of CheckSpec that is about attention.
#pragma once

#include "absl/status/status.h"
#include "core/model/spec.h"

namespace moed {

// Heads, rotations, windows and latent attention. INVALID_ARGUMENT naming field, value and limit. Numbers of
// SpecIntegers are within their bounds.
absl::Status CheckAttention(const ModelSpec& spec);

}  // namespace moed
