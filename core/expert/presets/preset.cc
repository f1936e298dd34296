#include "core/expert/presets/preset.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/expert/fidelity/fate.h"
#include "core/expert/fidelity/hobbit.h"
#include "core/expert/named_rows.h"
#include "core/expert/policies/fate.h"
#include "core/expert/policies/hobbit.h"
#include "core/expert/swapmoe/parts.h"
#include "core/quant/format.h"
#include "core/store/expert_norms.h"
#include "core/store/layout.h"

namespace moed {
namespace {

// How free room of the cache is filled.
constexpr bool kFills = true;
constexpr bool kOnDemand = false;

constexpr PresetRow kPresets[] = {
    {"auto", "exact unless a request allows a loss, which is then spent where it saves the most waiting", "learned", "learned",
     "none", "priced", kFills},
    // EdgeMoE, arXiv 2308.14352: sections 3.2, 3.3 and 3.4.
    {"edgemoe", "EdgeMoE: every expert at its own width, activation paths, use count over layer distance", "edgemoe",
     "activation-path", "none", "widths", kFills},
    // HOBBIT, arXiv 2411.01433: sections 3.2, 3.3 and 3.4.
    {"hobbit", "HOBBIT: high, low or skipped at a miss, stacked gates, four-way priority", "hobbit", "stacked-gate", "none",
     "hobbit"},
    // Fate, arXiv 2502.12224: sections 4.2 to 4.5.
    {"fate", "Fate: cross-layer gate, shallow layers whole, popularity in prompts", "fate", "fate", "none", "fate", kOnDemand,
     CacheKind::kWhole, true},
    // SwapMoE, arXiv 2308.15030: sections 3.2, 3.3 and 3.5; its baseline of 5.1 and its ablations of 5.5.
    {"swapmoe", "SwapMoE: answers choose among residents alone, which follow the router's choices", "swapmoe", "swapmoe",
     "swapmoe", "exact", kOnDemand, CacheKind::kWhole, false, kSwapMoeOptions, MakeSwapMoe},
    {"swapmoe-equal", "swapmoe with as many slots in every layer", "swapmoe", "swapmoe", "swapmoe", "exact", kOnDemand,
     CacheKind::kWhole, false, kSwapMoeOptions, MakeSwapMoeEqual},
    {"swapmoe-tokens", "swapmoe with the number of an expert's tokens as its importance", "swapmoe", "swapmoe", "swapmoe",
     "exact", kOnDemand, CacheKind::kWhole, false, kSwapMoeOptions, MakeSwapMoeTokens},
    {"swapmoe-pruning", "the experts of the largest norms, as many in every layer, always the same", "swapmoe", "swapmoe",
     "swapmoe", "exact", kOnDemand, CacheKind::kWhole, false, kSwapMoePruningOptions, MakeSwapMoePruning},
    // Fate's baselines, section 5.1. EAP is described there with Fate's own cache.
    {"load-on-demand", "experts are read when they are wanted, without a cache", "lru", "none", "none", "exact", kOnDemand,
     CacheKind::kOneToken},
    {"load-on-demand-lru", "experts are read when they are wanted, the last used ones stay", "lru", "none", "none", "exact"},
    {"eap", "activation paths of the layer before, Fate's cache", "fate", "eap", "none", "exact"},
    {"eap-lru", "activation paths of the layer before, the last used experts stay", "lru", "eap", "none", "exact"},
    // EdgeMoE's baselines, section 5.1.
    {"io-free", "every expert in memory", "lru", "none", "none", "exact", kOnDemand, CacheKind::kAll},
    {"io-qfree", "every expert in memory at the store's last precision", "lru", "none", "none", "lowest", kOnDemand,
     CacheKind::kAll},
    {"io-exp", "EdgeMoE's name for load-on-demand", "lru", "none", "none", "exact", kOnDemand, CacheKind::kOneToken},
    {"io-exp-lru", "EdgeMoE's name for load-on-demand-lru", "lru", "none", "none", "exact"},
    {"io-qexp", "load-on-demand at the store's last precision", "lru", "none", "none", "lowest", kOnDemand, CacheKind::kOneToken},
    {"io-qexp-lru", "load-on-demand-lru at the store's last precision", "lru", "none", "none", "lowest"},
};

// Of parts whose own tables know no options.
constexpr std::array kHobbitWeightOptions = {
    OptionRow{"hobbit-lru", "weight of recency; the four sum to 1", "0.71", 0, 1},
    OptionRow{"hobbit-lfu", "weight of frequency", "0.12", 0, 1},
    OptionRow{"hobbit-lhu", "weight of frequency at the reference precision", "0.12", 0, 1},
    OptionRow{"hobbit-fld", "weight of the layer's distance", "0.05", 0, 1},
};
constexpr std::array kFatePolicyOptions = {
    OptionRow{"fate-shallow-layers", "first MoE layers that are kept whole", "3", 0, 1 << 16}};
constexpr std::array kStackedGateOptions = {
    OptionRow{"stacked-gate-layers", "p: layers ahead whose gates are asked", "3", 1, 64}};

struct PartOptionsRow {
  std::string_view part;
  std::span<const OptionRow> options;
};
constexpr PartOptionsRow kPolicyOptions[] = {
    {"hobbit", kHobbitWeightOptions}, {"fate", kFatePolicyOptions}, {"fate", kFatePlanOptions}};
constexpr PartOptionsRow kPredictorOptions[] = {
    {"stacked-gate", kStackedGateOptions}, {"activation-path", kPathOptions}, {"eap", kPathOptions}};
constexpr PartOptionsRow kRuleOptions[] = {{"fate", kFatePlanOptions}};

void AddOptions(std::span<const OptionRow> options, std::vector<const OptionRow*>& known) {
  for (const OptionRow& option : options) {
    if (std::ranges::find(known, &option) == known.end()) known.push_back(&option);
  }
}
void AddOptionsOf(std::span<const PartOptionsRow> rows, std::string_view part, std::vector<const OptionRow*>& known) {
  for (const PartOptionsRow& row : rows) {
    if (row.part == part) AddOptions(row.options, known);
  }
}

std::string PackCommand(const StoreReader& store, std::string_view formats) {
  return StrCat("moed-pack CHECKPOINT ", store.path(), " --force --expert-formats ", formats);
}

// For a store like this one.
std::string FormatsOf(const StoreReader& store) {
  std::string formats;
  for (const ExpertLayout& layout : store.description().precisions) {
    formats += StrCat(formats.empty() ? "" : ",", FormatOf(layout.format).name);
  }
  return formats;
}

// With one more precision.
std::string MoreFormats(const StoreReader& store) {
  const auto is_q2 = [](const ExpertLayout& layout) { return layout.format == FormatId::kQ2; };
  return std::ranges::any_of(store.description().precisions, is_q2) ? "q8,q2" : StrCat(FormatsOf(store), ",q2");
}

// Those of the file of slots, which a store without any may have, else the store's.
absl::StatusOr<std::vector<float>> NormsOf(const PresetSetup& setup, const StoreReader& store) {
  if (setup.files.slots != nullptr) return setup.files.slots->norms;
  absl::StatusOr<std::vector<float>> norms = ReadExpertNorms(store);
  if (!absl::IsNotFound(norms.status())) return norms;
  return FailedPrecondition("preset ", setup.row->name, " weighs experts by their norms, which ", store.path(), " lacks; \"",
                            PackCommand(store, FormatsOf(store)), "\" writes them, and \"moed-plan slots ", store.path(),
                            " TEXT\" puts them into a file for --preset-options slots=FILE");
}

absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakePolicyOf(const PresetSetup& setup, const ExpertModelShape& context) {
  if (setup.policy == "hobbit") {
    double weights[kHobbitWeightOptions.size()];
    double sum = 0;
    for (size_t i = 0; i < kHobbitWeightOptions.size(); ++i) {
      MOED_ASSIGN_OR_RETURN(weights[i], setup.options.Number(kHobbitWeightOptions[i]));
      sum += weights[i];
    }
    if (!(sum > 1 - 1e-6 && sum < 1 + 1e-6)) {
      return InvalidArgument("hobbit-lru, hobbit-lfu, hobbit-lhu and hobbit-fld sum to ", sum, ", 1 is needed");
    }
    return MakeHobbitPolicy(context, HobbitWeights{weights[0], weights[1], weights[2], weights[3]});
  }
  if (setup.policy == "fate") {
    MOED_ASSIGN_OR_RETURN(const double shallow, setup.options.Number(kFatePolicyOptions[0]));
    return MakeFatePolicy(context, static_cast<int>(shallow));
  }
  return MakePolicy(setup.policy, context);
}

// What a rule does with an expert that is wanted, its predictor does with one that is guessed.
absl::StatusOr<std::unique_ptr<ExpertPredictor>> MakePredictorOf(const PresetSetup& setup, const PresetContext& context) {
  PredictorContext predictor = context.predictor;
  MOED_ASSIGN_OR_RETURN(const double look_ahead, setup.options.Number(kStackedGateOptions[0]));
  predictor.look_ahead = static_cast<int>(look_ahead);
  if (setup.rule == "hobbit") {
    MOED_ASSIGN_OR_RETURN(const double t1, setup.options.Number(kHobbitOptions[0]));
    MOED_ASSIGN_OR_RETURN(const double t2, setup.options.Number(kHobbitOptions[1]));
    predictor.high_mass = static_cast<float>(t1);
    predictor.low_mass = static_cast<float>(t2);
  }
  if (setup.rule == "fate") {
    MOED_ASSIGN_OR_RETURN(const double unpopular, setup.options.Number(kFateOptions[0]));
    predictor.unpopular_share = static_cast<float>(unpopular);
  }
  predictor.paths = setup.files.paths;
  return MakePredictor(setup.predictor, predictor);
}

}  // namespace

std::span<const PresetRow> Presets() { return kPresets; }

absl::StatusOr<std::vector<const OptionRow*>> KnownOptions(const PresetChoice& choice) {
  MOED_ASSIGN_OR_RETURN(const PresetRow* row, FindRow(Presets(), "preset", choice.preset));
  const std::string_view rule_name = choice.rule.empty() ? row->rule : choice.rule;
  MOED_ASSIGN_OR_RETURN(const FidelityRow* rule, FindRow(FidelityRules(), "fidelity rule", rule_name));
  std::vector<const OptionRow*> known;
  AddOptions(row->options, known);
  AddOptions(rule->options, known);
  AddOptionsOf(kPolicyOptions, choice.policy.empty() ? row->policy : choice.policy, known);
  AddOptionsOf(kPredictorOptions, choice.predictor.empty() ? row->predictor : choice.predictor, known);
  AddOptionsOf(kRuleOptions, rule_name, known);
  return known;
}

absl::StatusOr<PresetSetup> ChoosePreset(const PresetChoice& choice, const StoreReader& store) {
  PresetSetup setup;
  MOED_ASSIGN_OR_RETURN(setup.row, FindRow(Presets(), "preset", choice.preset));
  const PresetRow& row = *setup.row;
  setup.policy = choice.policy.empty() ? row.policy : choice.policy;
  setup.predictor = choice.predictor.empty() ? row.predictor : choice.predictor;
  setup.rule = choice.rule.empty() ? row.rule : choice.rule;
  setup.mask = row.mask;
  setup.fill = choice.fill.value_or(row.fill);
  if (setup.fill && row.mask != "none") {
    return InvalidArgument("preset ", row.name, " chooses itself who is in the cache: it cannot be filled beside that");
  }
  setup.options = choice.options;
  MOED_ASSIGN_OR_RETURN(const FidelityRow* rule, FindRow(FidelityRules(), "fidelity rule", setup.rule));
  setup.may_lose = std::max(rule->may_lose, row.mask == "none" ? kLoseNothing : kLoseAnything);
  const int precisions = static_cast<int>(store.description().precisions.size());
  if (precisions < rule->least_precisions) {
    return FailedPrecondition("preset ", row.name, " with the fidelity rule ", rule->name, " needs experts at ",
                              rule->least_precisions, " precisions, ", store.path(), " holds ", precisions, "; \"",
                              PackCommand(store, MoreFormats(store)), "\" makes such a store");
  }
  MOED_ASSIGN_OR_RETURN(const std::vector<const OptionRow*> known, KnownOptions(choice));
  MOED_RETURN_IF_ERROR(choice.options.CheckKnown(known));
  MOED_ASSIGN_OR_RETURN(setup.files, ReadPresetFiles(setup.options, store));
  if (setup.mask == "swapmoe") {
    MOED_ASSIGN_OR_RETURN(std::vector<float> norms, NormsOf(setup, store));
    setup.norms = std::make_shared<const std::vector<float>>(std::move(norms));
  }
  if (setup.files.fate.has_value()) {
    setup.options.SetDefault(kFateOptions[0], StrCat(setup.files.fate->prefill_low));
    setup.options.SetDefault(kFatePolicyOptions[0], StrCat(setup.files.fate->shallow_layers));
  }
  return setup;
}

absl::StatusOr<PresetParts> MakePresetParts(const PresetSetup& setup, const PresetContext& context) {
  const PresetRow& row = *setup.row;
  PresetParts parts;
  if (row.make != nullptr) {
    MOED_ASSIGN_OR_RETURN(parts, row.make(setup, context));
  }
  // What was asked for by name replaces that part of a preset whose parts share state.
  if (row.make == nullptr || setup.policy != row.policy) {
    MOED_ASSIGN_OR_RETURN(parts.policy, MakePolicyOf(setup, context.predictor.model));
  }
  if (row.make == nullptr || setup.predictor != row.predictor) {
    MOED_ASSIGN_OR_RETURN(parts.predictor, MakePredictorOf(setup, context));
  }
  if (row.make == nullptr || setup.rule != row.rule) {
    MOED_ASSIGN_OR_RETURN(parts.rule, MakeFidelityRule(setup.rule, {context.predictor.model, setup.options, setup.files.widths}));
  }
  if (row.make == nullptr) {
    MOED_ASSIGN_OR_RETURN(parts.mask, MakeRouterMask(setup.mask, context.predictor.model));
  }
  return parts;
}

CacheBounds BoundsOfCache(const PresetSetup& setup, const StoreReader& store, int top_k) {
  const StoreDescription& description = store.description();
  const size_t precision = setup.rule == "lowest" ? description.precisions.size() - 1 : kReferencePrecision;
  const uint64_t record = description.precisions[precision].record_bytes;
  const uint64_t largest = LargestRecordBytes(description);
  switch (setup.row->cache) {
    case CacheKind::kWhole:
      return {.lends = setup.row->make == nullptr};
    case CacheKind::kOneToken:
      return {.most = std::max(static_cast<uint64_t>(top_k) * record, largest)};
    case CacheKind::kAll:
      return {.least = std::max(description.moe_layers.size() * description.experts_per_layer * record, largest)};
  }
  return {};
}

std::string_view FidelityClassName(float may_lose) {
  return may_lose == kLoseNothing ? "exact" : may_lose == kLoseAnything ? "fast" : "bounded";
}

}  // namespace moed
