// One row per policy; tests iterate the table.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/expert/part_context.h"
#include "core/expert/part_options.h"
#include "core/expert/policies/eviction_policy.h"

namespace moed {

struct PolicyRow {
  std::string_view name;
  std::string_view description;
  std::string_view source = {};
  std::span<const OptionRow* const> options = {};
  // INVALID_ARGUMENT: options that do not go together, or one that is missing. Those of files that are Unread wait. Null: any do.
  absl::Status (*check_options)(const PartOptions& options) = nullptr;
  absl::StatusOr<std::unique_ptr<EvictionPolicy>> (*make)(const PartContext& context, const PartOptions& options) = nullptr;
  PartMemory (*memory)(const PartContext& context, const PartOptions& options) = nullptr;  // null: nothing worth counting
  std::string_view mask = {};  // the router mask that it works with alone; "": any
};
std::span<const PolicyRow> Policies();
// INVALID_ARGUMENT lists the known names, or says what is wrong with an option.
absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakePolicy(std::string_view name, const PartContext& context,
                                                           const PartOptions& options = {});

}  // namespace moed
