#include "core/expert/presets/preset.h"

#include <algorithm>
#include <span>

#include "core/base/status.h"
#include "core/expert/named_rows.h"
#include "core/expert/pack_command.h"
#include "core/store/layout.h"

namespace moed {
namespace {

absl::StatusOr<PresetSetup> FindRows(const PresetChoice& choice) {
  const auto either = [](const std::string& chosen, std::string_view preset) { return chosen.empty() ? preset : chosen; };
  PresetSetup setup;
  MOED_ASSIGN_OR_RETURN(setup.row, FindRow(Presets(), "preset", choice.preset));
  const PresetRow& row = *setup.row;
  MOED_ASSIGN_OR_RETURN(setup.policy, FindRow(Policies(), "policy", either(choice.policy, row.policy)));
  MOED_ASSIGN_OR_RETURN(setup.predictor, FindRow(Predictors(), "predictor", either(choice.predictor, row.predictor)));
  MOED_ASSIGN_OR_RETURN(setup.mask, FindRow(RouterMasks(), "router mask", row.mask));
  MOED_ASSIGN_OR_RETURN(setup.rule, FindRow(FidelityRules(), "fidelity rule", either(choice.rule, row.rule)));
  return setup;
}

std::vector<const OptionRow*> KnownOptions(const PresetSetup& setup) {
  std::vector<const OptionRow*> known;
  const auto add = [&](std::span<const OptionRow* const> options) {
    for (const OptionRow* option : options) {
      const auto says = [option](const OptionValue& value) { return value.option == option; };
      const bool open = std::ranges::find(setup.row->without, option) == setup.row->without.end() &&
                        std::ranges::none_of(setup.row->values, says);
      if (open && std::ranges::find(known, option) == known.end()) known.push_back(option);
    }
  };
  add(setup.rule->options);
  add(setup.policy->options);
  add(setup.predictor->options);
  add(setup.mask->options);
  return known;
}

// Parts that share what they know with a mask make no sense without it.
absl::Status CheckTogether(const PresetSetup& setup) {
  const auto check = [&](std::string_view kind, const auto& row) {
    if (row.mask.empty() || row.mask == setup.mask->name) return absl::OkStatus();
    return InvalidArgument("the ", kind, " \"", row.name, "\" works with the router mask \"", row.mask, "\" alone; preset ",
                           setup.row->name, " has the router mask \"", setup.mask->name, "\"");
  };
  MOED_RETURN_IF_ERROR(check("policy", *setup.policy));
  return check("predictor", *setup.predictor);
}

absl::Status CheckStore(const PresetSetup& setup, const StoreReader& store) {
  const int precisions = static_cast<int>(store.description().precisions.size());
  if (precisions >= setup.rule->least_precisions) return absl::OkStatus();
  return FailedPrecondition("preset ", setup.row->name, " with the fidelity rule ", setup.rule->name, " needs experts at ",
                            setup.rule->least_precisions, " precisions, ", store.path(), " holds ", precisions, "; \"",
                            PackCommand(store, FormatsWithOneMore(store)), "\" makes such a store");
}

absl::Status CheckOptions(const PresetSetup& setup) {
  const auto check = [&](const auto& row) {
    return row.check_options == nullptr ? absl::OkStatus() : row.check_options(setup.options);
  };
  MOED_RETURN_IF_ERROR(check(*setup.policy));
  MOED_RETURN_IF_ERROR(check(*setup.rule));
  return check(*setup.mask);
}

uint64_t LeastOfMask(const PresetSetup& setup, const StoreDescription& store) {
  if (setup.mask->least_records == nullptr) return 0;
  const uint64_t records = setup.mask->least_records(static_cast<int>(store.moe_layers.size()), setup.options);
  return records * LargestRecordBytes(store.precisions[kReferencePrecision]);
}

}  // namespace

absl::StatusOr<std::vector<const OptionRow*>> KnownOptions(const PresetChoice& choice) {
  MOED_ASSIGN_OR_RETURN(const PresetSetup setup, FindRows(choice));
  return KnownOptions(setup);
}

absl::StatusOr<PresetSetup> ChoosePreset(const PresetChoice& choice) {
  MOED_ASSIGN_OR_RETURN(PresetSetup setup, FindRows(choice));
  const PresetRow& row = *setup.row;
  MOED_RETURN_IF_ERROR(CheckTogether(setup));
  setup.fill = choice.fill.value_or(row.fill);
  if (setup.fill && setup.mask->chooses_residents) {
    return InvalidArgument("preset ", row.name, " chooses itself who is in the cache: it cannot be filled beside that");
  }
  setup.fidelity = std::max(setup.rule->fidelity, setup.mask->fidelity);
  setup.options = choice.options;
  MOED_RETURN_IF_ERROR(setup.options.SetKnown(KnownOptions(setup)));
  for (const OptionValue& value : row.values) setup.options.Set(*value.option, value.value);
  MOED_RETURN_IF_ERROR(CheckOptions(setup));
  return setup;
}

absl::StatusOr<PresetSetup> ChoosePreset(const PresetChoice& choice, const StoreReader& store) {
  MOED_ASSIGN_OR_RETURN(PresetSetup setup, ChoosePreset(choice));
  MOED_RETURN_IF_ERROR(CheckStore(setup, store));
  MOED_RETURN_IF_ERROR(setup.options.ReadFiles(store));
  MOED_RETURN_IF_ERROR(CheckOptions(setup));
  if (setup.mask->check != nullptr) {
    MOED_RETURN_IF_ERROR(Annotate(setup.mask->check(store, setup.options), StrCat("preset ", setup.row->name)));
  }
  return setup;
}

bool ChoosesResidents(const PresetSetup& setup) {
  return setup.mask->chooses_residents || setup.row->cache == CacheKind::kOneToken;
}

std::string LearnersOf(const PresetSetup& setup) {
  return StrCat("policy ", setup.policy->name, ", predictor ", setup.predictor->name);
}

PartMemory MemoryOfParts(const PresetSetup& setup, const PartContext& context) {
  PartMemory memory{.fixed_bytes = setup.options.file_bytes()};
  const auto add = [&](const auto& row) {
    if (row.memory != nullptr) memory += row.memory(context, setup.options);
  };
  add(*setup.policy);
  add(*setup.predictor);
  add(*setup.rule);
  add(*setup.mask);
  return memory;
}

absl::StatusOr<PresetParts> MakePresetParts(const PresetSetup& setup, const PartContext& of_all) {
  PartContext context = of_all;
  context.shared = std::make_shared<SharedState>();
  PresetParts parts;
  MOED_ASSIGN_OR_RETURN(parts.mask, MakeRouterMask(setup.mask->name, context, setup.options));
  MOED_ASSIGN_OR_RETURN(parts.policy, MakePolicy(setup.policy->name, context, setup.options));
  MOED_ASSIGN_OR_RETURN(parts.predictor, MakePredictor(setup.predictor->name, context, setup.options));
  MOED_ASSIGN_OR_RETURN(parts.rule, MakeFidelityRule(setup.rule->name, context, setup.options));
  return parts;
}

CacheBounds BoundsOfCache(const PresetSetup& setup, const StoreDescription& store, int top_k) {
  const size_t precision = setup.rule->at_last_precision ? store.precisions.size() - 1 : kReferencePrecision;
  const uint64_t record = LargestRecordBytes(store.precisions[precision]);
  const uint64_t largest = LargestRecordBytes(store);
  switch (setup.row->cache) {
    case CacheKind::kWhole:
      return {.least = LeastOfMask(setup, store), .lends = !setup.mask->chooses_residents};
    case CacheKind::kOneToken:
      return {.most = std::max(static_cast<uint64_t>(top_k) * record, largest)};
    case CacheKind::kAll:
      return {.least = std::max(AllRecordBytes(store, static_cast<Precision>(precision)), largest)};
  }
  return {};
}

}  // namespace moed
