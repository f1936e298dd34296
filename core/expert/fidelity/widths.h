// EdgeMoE, arXiv 2308.14352, section 3.2: expert-wise bit widths, planned offline and read from a file:
//   {"model_hash": "<16 hexadecimal digits>", "precisions": [[<index into the store's formats> per expert] per MoE layer]}
#pragma once

#include <string>

#include "core/expert/fidelity/rule.h"

namespace moed {

inline constexpr OptionRow kWidthsOptions[] = {
    {"widths", "file with the precision of every expert (moed-plan widths writes it)", ""},
};
// INVALID_ARGUMENT names the file: unreadable, no such JSON, of another model, of another shape, or with a precision that the
// store lacks.
absl::StatusOr<ExpertWidths> ReadWidths(const std::string& path, uint64_t model_hash, int layers, int experts, int precisions);
// INVALID_ARGUMENT: no widths are given.
absl::StatusOr<std::unique_ptr<FidelityRule>> MakeWidthsRule(const RuleContext& context);

}  // namespace moed
