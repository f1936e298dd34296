// A request's fidelity as command lines write it.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "moe/v1/inference.pb.h"

namespace moed {

// "exact", "fast-matmul", "bounded:X" or "fast"; "" is nothing. INVALID_ARGUMENT says what is allowed.
absl::StatusOr<std::optional<moe::v1::Fidelity>> ParseFidelity(const std::string& text);
// The same of the flag --fidelity, which the error names.
absl::StatusOr<std::optional<moe::v1::Fidelity>> FidelityOfFlag(const std::string& text);

}  // namespace moed
