// The preset that the daemon was told, what it needs, and the provider made from its parts.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/trace.h"
#include "core/expert/builder/build_provider.h"
#include "core/expert/cache/caching_provider.h"
#include "core/expert/presets/preset.h"
#include "core/expert/routing_trace.h"
#include "core/io/read_backend.h"
#include "core/model/spec.h"
#include "core/serving/serving_plan.h"
#include "core/store/store.h"
#include "server/startup/config.h"

namespace moed {

// All arguments outlive it.
class ProviderBuilder {
 public:
  static absl::StatusOr<std::unique_ptr<ProviderBuilder>> Choose(const Config& config, const StoreReader& store,
                                                                 const ModelSpec& spec);

  const PresetSetup& preset() const { return preset_; }
  PresetNeeds Needs() const { return NeedsOfPreset(preset_, store_.description(), spec_); }

  struct Dependencies {
    GateFn gate;
    ReadBackend& reads;
    const Clock& clock;
    Allocator& allocator;  // of experts
    DeviceSlots device;    // likewise; as much of it as `memory` says
    Trace* trace;          // may be null
    const MemoryPlan& memory;
  };
  // Takes up what was learned (--learned-state).
  absl::Status Open(const Dependencies& around);
  CachingProvider& provider() { return *provider_; }

  // Writes what was learned and recorded, once nobody uses the provider any more.
  absl::Status Finish();

 private:
  ProviderBuilder(const Config& config, const StoreReader& store, const ModelSpec& spec);
  LearnedFile LearnedStateFile() const;
  absl::Status LoadLearned(PresetParts& parts) const;
  absl::Status StartRecording();

  const Config& config_;
  const StoreReader& store_;
  const ModelSpec& spec_;
  const GateShape router_;
  PresetSetup preset_;
  std::unique_ptr<RoutingRecorder> recorder_;  // null: nothing is recorded
  std::unique_ptr<CachingProvider> provider_;
};

}  // namespace moed
