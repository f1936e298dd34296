// EdgeMoE, arXiv 2308.14352, III-B: expert-wise bit widths, planned offline and read from a file:
//   {"model_hash": "<16 hexadecimal digits>", "precisions": [[<index into the store's formats> per expert] per MoE layer]}
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/expert/fidelity/rule.h"
#include "core/expert/part_context.h"
#include "core/expert/part_options.h"

namespace moed {

// By MoE layer and expert: the precision that an expert has everywhere.
using ExpertWidths = std::vector<std::vector<int>>;

// INVALID_ARGUMENT names the file: unreadable, no such JSON, of another model, of another shape, or with a precision that the
// store lacks.
absl::StatusOr<ExpertWidths> ReadWidths(const std::string& path, uint64_t model_hash, int layers, int experts, int precisions);
absl::StatusOr<std::any> ReadWidthsFile(const std::string& path, const StoreReader& store);

inline constexpr OptionRow kWidthsOption{.name = "widths",
                                         .help = "file with the precision of every expert (moed-plan widths writes it)",
                                         .source = "EdgeMoE, arXiv 2308.14352, III-B",
                                         .read = ReadWidthsFile};
inline constexpr const OptionRow* kWidthsRuleOptions[] = {&kWidthsOption};

absl::Status CheckWidthsGiven(const PartOptions& options);
// CheckWidthsGiven's errors.
absl::StatusOr<std::unique_ptr<FidelityRule>> MakeWidthsRule(const PartContext& context, const PartOptions& options);
PartMemory WidthsRuleMemory(const PartContext& context, const PartOptions& options);

}  // namespace moed
