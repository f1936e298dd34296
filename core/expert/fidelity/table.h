// One row per fidelity rule, one per router mask; tests iterate the tables.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/fidelity.h"
#include "core/expert/fidelity/mask.h"
#include "core/expert/fidelity/rule.h"
#include "core/expert/part_context.h"
#include "core/expert/part_options.h"

namespace moed {

struct FidelityRow {
  std::string_view name;
  std::string_view description;
  std::string_view source = {};
  Fidelity fidelity;               // of requests that do not say: its class
  int least_precisions = 1;        // that the store has to hold
  bool at_last_precision = false;  // every expert is used at the store's last precision
  std::span<const OptionRow* const> options = {};
  // INVALID_ARGUMENT: options that do not go together, or one that is missing. Those of files that are Unread wait. Null: any do.
  absl::Status (*check_options)(const PartOptions& options) = nullptr;
  absl::StatusOr<std::unique_ptr<FidelityRule>> (*make)(const PartContext& context, const PartOptions& options) = nullptr;
  PartMemory (*memory)(const PartContext& context, const PartOptions& options) = nullptr;  // null: nothing worth counting
};
std::span<const FidelityRow> FidelityRules();
// INVALID_ARGUMENT lists the known names, or says what is wrong with an option. FAILED_PRECONDITION: too few precisions.
absl::StatusOr<std::unique_ptr<FidelityRule>> MakeFidelityRule(std::string_view name, const PartContext& context,
                                                               const PartOptions& options = {});

struct RouterMaskRow {
  std::string_view name;  // "none", which makes null: no mask
  std::string_view description;
  std::string_view source = {};
  Fidelity fidelity;               // of requests that do not say, whatever the rule's class
  bool chooses_residents = false;  // itself, and so leaves none of the cache to be filled or lent
  std::span<const OptionRow* const> options = {};
  absl::Status (*check_options)(const PartOptions& options) = nullptr;  // as a rule's
  absl::StatusOr<std::unique_ptr<RouterMask>> (*make)(const PartContext& context, const PartOptions& options) = nullptr;
  PartMemory (*memory)(const PartContext& context, const PartOptions& options) = nullptr;  // null: nothing worth counting
  // Of the cache, so that it can be made. Null: the least that any cache has.
  uint64_t (*least_records)(int moe_layers, const PartOptions& options) = nullptr;
  // FAILED_PRECONDITION: the store lacks something. Null: it needs nothing.
  absl::Status (*check)(const StoreReader& store, const PartOptions& options) = nullptr;
};
std::span<const RouterMaskRow> RouterMasks();
absl::StatusOr<std::unique_ptr<RouterMask>> MakeRouterMask(std::string_view name, const PartContext& context,
                                                           const PartOptions& options = {});

}  // namespace moed
