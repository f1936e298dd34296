// From the name of a preset to its parts: chosen and checked against the store before anything is planned, made once the cache's
// size is known.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/fidelity.h"
#include "core/expert/fidelity/table.h"
#include "core/expert/part_context.h"
#include "core/expert/part_options.h"
#include "core/expert/policies/table.h"
#include "core/expert/predictors/table.h"
#include "core/expert/presets/table.h"
#include "core/store/store.h"

namespace moed {

// What the daemon was told.
struct PresetChoice {
  std::string preset = "auto";
  std::string policy;        // "": the preset's
  std::string predictor;     // "": the preset's
  std::string rule;          // "": the preset's
  std::optional<bool> fill;  // absent: the preset's
  PartOptions options;
};

// What is turned on.
struct PresetSetup {
  const PresetRow* row = nullptr;
  const PolicyRow* policy = nullptr;
  const PredictorRow* predictor = nullptr;
  const RouterMaskRow* mask = nullptr;
  const FidelityRow* rule = nullptr;
  bool fill = false;
  Fidelity fidelity;    // of requests that do not say: the preset's class
  PartOptions options;  // with what the preset says, and what files hold
};

// Options that the preset has with these parts. INVALID_ARGUMENT: an unknown name.
absl::StatusOr<std::vector<const OptionRow*>> KnownOptions(const PresetChoice& choice);
// Before there is a store: files that options name are not read. INVALID_ARGUMENT: an unknown name or option, with the known
// ones; parts or options that do not go together.
absl::StatusOr<PresetSetup> ChoosePreset(const PresetChoice& choice);
// And errors of files that options name. FAILED_PRECONDITION: the store lacks a precision or norms; says which pack makes it.
absl::StatusOr<PresetSetup> ChoosePreset(const PresetChoice& choice, const StoreReader& store);

struct PresetParts {
  std::unique_ptr<EvictionPolicy> policy;
  std::unique_ptr<ExpertPredictor> predictor;
  std::unique_ptr<RouterMask> mask;  // null: none
  std::unique_ptr<FidelityRule> rule;
};
// Whether it decides itself what is in memory, so that nobody else may.
bool ChoosesResidents(const PresetSetup& setup);
// Who learns in it, as a file of learned state has it.
std::string LearnersOf(const PresetSetup& setup);
// What they will hold.
PartMemory MemoryOfParts(const PresetSetup& setup, const PartContext& context);
// Shares its state with no others. INVALID_ARGUMENT: an option's value.
absl::StatusOr<PresetParts> MakePresetParts(const PresetSetup& setup, const PartContext& context);

// Bytes of cache that the preset needs at least and can use at most (0: no bound of its own), and whether some of it may be lent:
// not where all of it is to be resident by plan.
struct CacheBounds {
  uint64_t least = 0;
  uint64_t most = 0;
  bool lends = false;
};
CacheBounds BoundsOfCache(const PresetSetup& setup, const StoreDescription& store, int top_k);

}  // namespace moed
