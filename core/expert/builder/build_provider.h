// The one place where the expert path is put together: a preset's policy, predictor, router mask and fidelity rule, around the
// cache. The daemon, the planners, replays and the tests of the whole path come here.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/base/clock.h"
#include "core/base/trace.h"
#include "core/expert/cache/caching_provider.h"
#include "core/expert/part_context.h"
#include "core/expert/presets/preset.h"
#include "core/expert/routing_trace.h"
#include "core/io/read_backend.h"
#include "core/store/store.h"

namespace moed {

// The model's router, as far as the expert path asks.
struct GateShape {
  int top_k = 0;
  int hidden = 0;          // of its input
  int encoder_layers = 0;  // ExpertModelShape's
};

// What is pointed to outlives the provider.
struct ProviderInputs {
  const StoreReader* store = nullptr;
  ReadBackend* reads = nullptr;
  GateShape router;
  GateFn gate;                              // null: there is no model
  size_t table_bytes = kDefaultTableBytes;  // ExpertModelShape's
  const Clock* clock = &Clock::Real();
  Allocator* allocator = &Allocator::Host();
  DeviceSlots device;                   // without an allocator: none
  Trace* trace = nullptr;               // null: none
  RoutingRecorder* recorder = nullptr;  // null: nothing is recorded
  std::vector<CachedKey> read_first;    // what was in memory before: into free room, first; each once
  ProviderOptions options;              // but most_wanted_first and whole_layers, which are the preset's
};

// What the parts will hold, before they are made.
PartMemory MemoryOfParts(const PresetSetup& setup, const StoreDescription& store, const GateShape& router);
absl::StatusOr<PresetParts> MakeParts(const PresetSetup& setup, const ProviderInputs& inputs);
// Around parts of MakeParts, which may have been taught or replaced meanwhile. Errors of CachingProvider::Create.
absl::StatusOr<std::unique_ptr<CachingProvider>> BuildProvider(const PresetSetup& setup, const ProviderInputs& inputs,
                                                               PresetParts parts);
// Both at once.
absl::StatusOr<std::unique_ptr<CachingProvider>> BuildProvider(const PresetSetup& setup, const ProviderInputs& inputs);

}  // namespace moed
