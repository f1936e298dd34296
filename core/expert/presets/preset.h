// Named combinations of the expert path's parts: who leaves the cache, who is read ahead, what is masked, lowered or skipped, how
// much cache there is. One row of a table per preset; tests iterate the table.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/expert/fidelity/mask.h"
#include "core/expert/fidelity/rule.h"
#include "core/expert/part_options.h"
#include "core/expert/policies/eviction_policy.h"
#include "core/expert/predictors/predictor.h"
#include "core/expert/presets/files.h"
#include "core/store/store.h"

namespace moed {

enum class CacheKind : uint8_t {
  kWhole,     // what the memory budget leaves
  kOneToken,  // what one token uses in a layer: the baselines without a cache
  kAll,       // every expert at the precision that the preset uses, or the daemon does not start
};

struct PresetContext {
  PredictorContext predictor;  // with the model's ExpertModelShape
};

struct PresetParts {
  std::unique_ptr<EvictionPolicy> policy;
  std::unique_ptr<ExpertPredictor> predictor;
  std::unique_ptr<RouterMask> mask;  // null: none
  std::unique_ptr<FidelityRule> rule;
};

struct PresetSetup;
struct PresetRow {
  std::string_view name;
  std::string_view description;
  std::string_view policy;
  std::string_view predictor;
  std::string_view mask;
  std::string_view rule;
  bool fill = false;  // free room of the cache is filled while the disk is idle
  CacheKind cache = CacheKind::kWhole;
  bool most_wanted_first = false;           // a prompt's experts are read in order of the tokens that chose them
  std::span<const OptionRow> options = {};  // beyond those of its parts
  // For parts that share state; null: by their names, from their tables.
  absl::StatusOr<PresetParts> (*make)(const PresetSetup& setup, const PresetContext& context) = nullptr;
};
std::span<const PresetRow> Presets();

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
  std::string policy;
  std::string predictor;
  std::string mask;
  std::string rule;
  bool fill = false;
  float may_lose = kLoseNothing;  // of requests that do not say: the preset's class
  PartOptions options;            // with what a plan's file says and nobody else did
  PresetFiles files;
  std::shared_ptr<const std::vector<float>> norms;  // (MoE layers, experts), for presets whose mask weighs experts by them
};

// Options that the preset has with these parts. INVALID_ARGUMENT: an unknown name.
absl::StatusOr<std::vector<const OptionRow*>> KnownOptions(const PresetChoice& choice);
// INVALID_ARGUMENT: an unknown name or option, with the known ones; errors of files that options name. FAILED_PRECONDITION: the
// store lacks a precision; says which pack makes it.
absl::StatusOr<PresetSetup> ChoosePreset(const PresetChoice& choice, const StoreReader& store);
// INVALID_ARGUMENT: an option's value.
absl::StatusOr<PresetParts> MakePresetParts(const PresetSetup& setup, const PresetContext& context);

// Bytes of cache that the preset needs at least and can use at most (0: no bound of its own), and whether some of it may be lent:
// not where all of it is to be resident by plan.
struct CacheBounds {
  uint64_t least = 0;
  uint64_t most = 0;
  bool lends = false;
};
CacheBounds BoundsOfCache(const PresetSetup& setup, const StoreReader& store, int top_k);

std::string_view FidelityClassName(float may_lose);  // "exact", "bounded", "fast"

}  // namespace moed
