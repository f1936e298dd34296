// The preset that the daemon was told, what it needs, and the provider made from its parts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "core/base/trace.h"
#include "core/expert/builder/build_provider.h"
#include "core/expert/cache/caching_provider.h"
#include "core/expert/learning/learned_state.h"
#include "core/expert/presets/preset.h"
#include "core/expert/residency_file.h"
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

  // Whether what was learned (--learned-state) and what was in memory (--residency) can be taken up; where a file is another
  // model's, the one beside it is this one's. Once, before Open. Errors name the flag: TakeLearned's and ReadResidency's.
  absl::Status CheckKept();

  struct Dependencies {
    GateFn gate;
    ReadBackend& reads;
    const Clock& clock;
    Allocator& allocator;  // of experts
    DeviceSlots device;    // likewise; as much of it as `memory` says
    Trace* trace;          // may be null
    const MemoryPlan& memory;
    uint64_t most_cache;  // that its cache may become
  };
  // Takes up what was kept.
  absl::Status Open(const Dependencies& around);
  CachingProvider& provider() { return *provider_; }

  // Writes which experts are in memory, if others are than when it was written last, so that the file is this model's from the
  // first time on. Any thread; nothing without
  // --residency.
  absl::Status KeepResidency();
  // Writes what was learned, if anything was routed since it was written last. `between_steps`: Engine::BetweenSteps, where the
  // file is written as far as the page cache; what the disk takes longer for is waited for here. Any thread but the engine's;
  // nothing without --learned-state.
  absl::Status KeepLearned(absl::FunctionRef<absl::Status(std::function<void()>)> between_steps);
  // FAILED_PRECONDITION without --residency.
  absl::Status CheckKeepsResidency() const;
  // FAILED_PRECONDITION where the preset decides itself what is in memory: `what` is not for it.
  absl::Status CheckChoosesFreely(std::string_view what) const;
  // Any thread: how many records the file has, and which, as it is now. NOT_FOUND, OUT_OF_RANGE and INVALID_ARGUMENT as
  // ReadResidency.
  size_t kept_records();
  absl::StatusOr<std::vector<CachedKey>> ReadKeptResidency() const;
  // Writes what was learned and recorded, and the residency, once nobody uses the provider any more.
  absl::Status Finish();

 private:
  ProviderBuilder(const Config& config, const StoreReader& store, const ModelSpec& spec);
  LearnedFile LearnedStateFile() const;
  ResidencyFile FileOfResidency() const { return {residency_, store_.model_hash()}; }
  absl::Status LoadLearned(PresetParts& parts);
  absl::Status LoadResidency(std::vector<CachedKey>& records);
  absl::Status CheckFile(std::string& path, absl::FunctionRef<absl::Status()> check) const;
  absl::Status StartRecording(uint64_t budget);
  std::string BesideAnothers(const std::string& path) const;

  const Config& config_;
  const StoreReader& store_;
  const ModelSpec& spec_;
  const GateShape router_;
  PresetSetup preset_;
  std::string learned_state_, residency_;      // files; beside those of the configuration where CheckKept found another model's
  std::unique_ptr<RoutingRecorder> recorder_;  // null: nothing is recorded
  std::unique_ptr<CachingProvider> provider_;
  absl::Mutex learned_mutex_;
  std::optional<uint64_t> learned_tokens_ ABSL_GUARDED_BY(learned_mutex_);  // routed by all layers when the file was written
  absl::Mutex residency_mutex_;
  std::optional<std::vector<CachedKey>> kept_residency_
      ABSL_GUARDED_BY(residency_mutex_);  // in the file; nullopt: there is none yet
};

}  // namespace moed
