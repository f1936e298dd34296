// One row per predictor; tests iterate the table.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/expert/part_context.h"
#include "core/expert/part_options.h"
#include "core/expert/predictors/predictor.h"

namespace moed {

struct PredictorRow {
  std::string_view name;  // "none"
  std::string_view description;
  std::string_view source = {};
  std::span<const OptionRow* const> options = {};
  absl::StatusOr<std::unique_ptr<ExpertPredictor>> (*make)(const PartContext& context, const PartOptions& options) = nullptr;
  PartMemory (*memory)(const PartContext& context, const PartOptions& options) = nullptr;  // null: nothing worth counting
  bool needs_gate = false;                                                                 // recorded routing has none
  std::string_view mask = {};  // the router mask that it works with alone; "": any
};
std::span<const PredictorRow> Predictors();
// INVALID_ARGUMENT for an unknown name, for an option's value and for a gate that is needed and not there.
absl::StatusOr<std::unique_ptr<ExpertPredictor>> MakePredictor(std::string_view name, const PartContext& context,
                                                               const PartOptions& options = {});

}  // namespace moed
