#include "core/expert/builder/build_provider.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "core/base/status.h"
#include "core/expert/cache/fill_order.h"

namespace moed {
namespace {

ExpertModelShape ShapeOf(const StoreDescription& store, const GateShape& router) {
  return {.moe_layers = store.moe_layers,
          .experts_per_layer = store.experts_per_layer,
          .top_k = router.top_k,
          .precisions = static_cast<int>(store.precisions.size()),
          .encoder_layers = router.encoder_layers};
}

}  // namespace

PartMemory MemoryOfParts(const PresetSetup& setup, const StoreDescription& store, const GateShape& router) {
  return MemoryOfParts(setup, {.model = ShapeOf(store, router), .hidden = router.hidden});
}

absl::StatusOr<PresetParts> MakeParts(const PresetSetup& setup, const ProviderInputs& inputs) {
  const StoreDescription& store = inputs.store->description();
  std::vector<uint64_t> record_bytes;
  for (const ExpertPrecision& precision : store.precisions) record_bytes.push_back(LargestRecordBytes(precision));
  PartContext context{.model = ShapeOf(store, inputs.router),
                      .hidden = inputs.router.hidden,
                      .gate = inputs.gate,
                      .store = inputs.store,
                      .clock = inputs.clock};
  context.model.record_bytes = record_bytes;
  context.model.capacity_bytes = inputs.options.capacity_bytes + inputs.device.capacity_bytes;
  context.model.table_bytes = inputs.table_bytes;
  return MakePresetParts(setup, context);
}

absl::StatusOr<std::unique_ptr<CachingProvider>> BuildProvider(const PresetSetup& setup, const ProviderInputs& inputs,
                                                               PresetParts parts) {
  ProviderParts all;
  all.store = inputs.store;
  all.reads = inputs.reads;
  all.fill = inputs.read_first;
  all.known = all.fill.size();
  const ExpertModelShape shape = ShapeOf(inputs.store->description(), inputs.router);
  all.encoder_positions = shape.encoder_positions();
  const absl::flat_hash_set<CachedKey> first(all.fill.begin(), all.fill.end());
  std::ranges::copy_if(FillOrder(setup, parts, shape), std::back_inserter(all.fill),
                       [&](const CachedKey& key) { return !first.contains(key); });
  all.policy = std::move(parts.policy);
  all.predictor = std::move(parts.predictor);
  all.mask = std::move(parts.mask);
  all.fidelity = std::move(parts.rule);
  all.clock = inputs.clock;
  all.allocator = inputs.allocator;
  all.device = inputs.device;
  all.trace = inputs.trace;
  all.recorder = inputs.recorder;
  ProviderOptions options = inputs.options;
  options.most_wanted_first = setup.row->most_wanted_first;
  options.whole_layers = setup.row->whole_layers;
  return CachingProvider::Create(std::move(all), options);
}

absl::StatusOr<std::unique_ptr<CachingProvider>> BuildProvider(const PresetSetup& setup, const ProviderInputs& inputs) {
  MOED_ASSIGN_OR_RETURN(PresetParts parts, MakeParts(setup, inputs));
  return BuildProvider(setup, inputs, std::move(parts));
}

}  // namespace moed
