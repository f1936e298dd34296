// The preset that the daemon was told, what it needs, and the provider made from its parts.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/trace.h"
#include "core/expert/caching_provider.h"
#include "core/expert/preset.h"
#include "core/expert/routing_trace.h"
#include "core/io/read_backend.h"
#include "core/model/model.h"
#include "core/store/store.h"
#include "server/config.h"
#include "server/memory_needs.h"

namespace moed {

// All arguments outlive it.
class ExpertPath {
 public:
  static absl::StatusOr<std::unique_ptr<ExpertPath>> Choose(const Config& config, const StoreReader& store,
                                                            const ModelSpec& spec);

  const PresetSetup& preset() const { return preset_; }
  // Parts that learn about tokens are larger when they are given room for it.
  absl::StatusOr<PresetNeeds> Needs() const;

  struct Surroundings {
    Model& model;
    ReadBackend& reads;
    const Clock& clock;
    Trace* trace;  // may be null
    const MemoryPlan& memory;
  };
  // Takes up what was learned (--learned-state).
  absl::Status Open(const Surroundings& around);
  CachingProvider& provider() { return *provider_; }

  // Writes what was learned and recorded, once nobody uses the provider any more.
  absl::Status Finish();

 private:
  ExpertPath(const Config& config, const StoreReader& store, const ModelSpec& spec);
  PresetContext Context(size_t table_bytes, uint64_t capacity_bytes) const;
  LearnedFile FileOfLearned() const;
  absl::Status TakeUpLearned(PresetParts& parts) const;
  absl::Status StartRecording();

  const Config& config_;
  const StoreReader& store_;
  const ModelSpec& spec_;
  std::vector<uint64_t> record_bytes_;  // of an expert, by precision
  PresetSetup preset_;
  Model* model_ = nullptr;                     // there before the gate is first asked
  std::unique_ptr<RoutingRecorder> recorder_;  // null: nothing is recorded
  std::unique_ptr<CachingProvider> provider_;
};

}  // namespace moed
