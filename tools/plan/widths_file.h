// The file that a widths plan ends in. "model_hash" and "precisions" are what the fidelity rule reads (core/expert/
// fidelity/widths.h); the rest is the report.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "tools/plan/loss_evaluator.h"
#include "tools/plan/widths_search.h"

namespace moed {

// The records of all experts, each at its precision.
uint64_t BytesOf(const WidthsPlan& plan, const StoreDescription& store);

// Whole or not at all.
absl::Status WriteWidthsFile(const std::string& path, const WidthsQuestion& question, const WidthsPlan& plan,
                             const LossEvaluator& evaluator);

}  // namespace moed
