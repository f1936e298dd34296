#include "core/expert/swapmoe/options.h"

#include <numeric>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/expert/pack_command.h"
#include "core/expert/swapmoe/slots.h"
#include "core/store/expert_norms.h"
#include "core/store/store.h"

namespace moed {
namespace {

// Null: as many in every layer.
absl::StatusOr<std::shared_ptr<const SlotsPlan>> PlanOf(const PartOptions& options) {
  MOED_ASSIGN_OR_RETURN(const size_t from, options.Word(kSwapMoeSlots));
  if (static_cast<SlotsFrom>(from) == SlotsFrom::kEqual) return nullptr;
  return options.File<SlotsPlan>(kSwapMoePlan);
}

absl::StatusOr<std::vector<int>> SlotsOf(const ExpertModelShape& model, const PartOptions& options) {
  MOED_CHECK(!model.record_bytes.empty());
  const uint64_t record_bytes = model.record_bytes[kReferencePrecision];
  const uint64_t records = model.capacity_bytes / record_bytes;
  MOED_ASSIGN_OR_RETURN(const auto plan, PlanOf(options));
  if (plan == nullptr) {
    return EqualSlots(static_cast<int>(model.moe_layers.size()), model.experts_per_layer, records);
  }
  MOED_RETURN_IF_ERROR(CheckSlotsFit(plan->slots, records, record_bytes));
  return plan->slots;
}

absl::StatusOr<SwapMoeFrequencyOptions> FrequencyOf(const PartOptions& options) {
  SwapMoeFrequencyOptions frequency;
  MOED_ASSIGN_OR_RETURN(frequency.window, options.WholeNumber(kSwapMoeWindow));
  MOED_ASSIGN_OR_RETURN(frequency.growth, options.Number(kSwapMoeGrowth));
  MOED_ASSIGN_OR_RETURN(frequency.tolerance, options.Number(kSwapMoeTolerance));
  MOED_ASSIGN_OR_RETURN(frequency.least_window, options.WholeNumber(kSwapMoeLeastWindow));
  MOED_ASSIGN_OR_RETURN(frequency.judged_steps, options.WholeNumber(kSwapMoeJudgedSteps));
  return frequency;
}

absl::StatusOr<std::shared_ptr<SwapMoeExperts>> MakeSwapMoeExperts(const PartContext& context, const PartOptions& options) {
  SwapMoeOptions swap{.clock = context.clock};
  MOED_ASSIGN_OR_RETURN(swap.slots, SlotsOf(context.model, options));
  MOED_CHECK(context.store != nullptr);
  MOED_ASSIGN_OR_RETURN(swap.norms, SwapMoeNorms(*context.store, options));
  MOED_ASSIGN_OR_RETURN(const size_t score, options.Word(kSwapMoeImportance));
  swap.score = static_cast<SwapMoeScore>(score);
  MOED_ASSIGN_OR_RETURN(const size_t updates, options.Word(kSwapMoeUpdates));
  swap.updates = updates == 1;
  MOED_ASSIGN_OR_RETURN(swap.frequency, FrequencyOf(options));
  MOED_ASSIGN_OR_RETURN(swap.fade, options.Number(kSwapMoeFade));
  return std::make_shared<SwapMoeExperts>(context.model, std::move(swap));
}

}  // namespace

absl::StatusOr<std::any> ReadSlotsFile(const std::string& path, const StoreReader& store) {
  const StoreDescription& description = store.description();
  MOED_ASSIGN_OR_RETURN(SlotsPlan plan, ReadSlotsPlan(path, store.model_hash(), static_cast<int>(description.moe_layers.size()),
                                                      description.experts_per_layer));
  return std::make_shared<const SlotsPlan>(std::move(plan));
}

absl::Status CheckSwapMoeOptions(const PartOptions& options) {
  MOED_ASSIGN_OR_RETURN(const size_t updates, options.Word(kSwapMoeUpdates));
  for (const OptionRow* row : kSwapMoeUpdateOptions) {
    if (updates == 0 && options.Given(*row))
      return InvalidArgument(row->name, ": without ", kSwapMoeUpdates.name, " nothing follows it");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> SwapMoeNorms(const StoreReader& store, const PartOptions& options) {
  if (const auto plan = options.File<SlotsPlan>(kSwapMoePlan); plan != nullptr) return plan->norms;
  return ReadExpertNorms(store);
}

uint64_t SwapMoeLeastRecords(int moe_layers, const PartOptions& options) {
  const auto plan = PlanOf(options);
  if (!plan.ok() || *plan == nullptr) return static_cast<uint64_t>(moe_layers) + kSpareSlots;
  return std::accumulate((*plan)->slots.begin(), (*plan)->slots.end(), kSpareSlots);
}

absl::Status CheckStoreHasNorms(const StoreReader& store, const PartOptions& options) {
  const absl::Status status = SwapMoeNorms(store, options).status();
  if (!absl::IsNotFound(status)) return status;
  return FailedPrecondition("experts are weighed by their norms, which ", store.path(), " lacks; \"",
                            PackCommand(store, FormatsOf(store)), "\" writes them, and \"moed-plan slots ", store.path(),
                            " TEXT\" puts them into a file for --preset-options slots=FILE");
}

absl::StatusOr<std::shared_ptr<SwapMoeExperts>> SharedSwapMoeExperts(const PartContext& context, const PartOptions& options) {
  return context.shared->Of<SwapMoeExperts>([&] { return MakeSwapMoeExperts(context, options); });
}

}  // namespace moed
