// The expert cache of a served model, as its operator changes it.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/engine/engine.h"
#include "core/expert/memory_plan.h"
#include "server/rpc/cache_operations.h"
#include "server/startup/provider_builder.h"

namespace moed {

// Files are written and read on a thread of its own; what is asked for before its end is done.
class ServedCache final : public CacheOperations {
 public:
  // `most_budget`: that Resize takes. All outlive it, but for the engine, which is stopped before End and there until then.
  ServedCache(ProviderBuilder& experts, Engine& engine, const MemoryPlan& plan, uint64_t most_budget);
  ~ServedCache() override { End(); }

  // Does what was asked for, and takes no more of it. Not thread-safe.
  void End();

  MemoryPlan plan() const override;
  std::optional<uint64_t> resized_budget() const;  // the last that Resize gave it
  uint64_t largest_budget() const;                 // that it has had
  absl::Status Resize(uint64_t budget_bytes, std::function<void(const absl::Status&)> done) override;
  absl::Status Pin(std::span<const ExpertKey> experts) override;
  void Unpin(std::span<const ExpertKey> experts) override;
  void UnpinAll() override { experts_.provider().UnpinAll(); }
  std::vector<ExpertKey> Pinned() const override;
  absl::StatusOr<size_t> Prefetch(std::span<const ExpertKey> experts) override;
  absl::Status SaveResidency(Counted done) override;
  absl::Status RestoreResidency(Counted done) override;
  // Write what was learned, and which experts are in memory, soon: whoever asks does not wait for a disk. Errors are logged.
  void KeepLearned();
  void KeepResidency();

 private:
  absl::Status WriteLearned();
  void WriteResidency();
  absl::Status ResizeNow(uint64_t budget_bytes);
  absl::Status Later(std::function<void()> task);
  void Work();

  ProviderBuilder& experts_;
  Engine& engine_;
  const uint64_t most_budget_;

  mutable absl::Mutex mutex_;
  MemoryPlan plan_ ABSL_GUARDED_BY(mutex_);
  std::optional<uint64_t> resized_budget_ ABSL_GUARDED_BY(mutex_);
  uint64_t largest_budget_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool residency_waits_ ABSL_GUARDED_BY(mutex_) = false;  // to be written, among the tasks
  absl::Status residency_kept_;                           // the worker's: of the last time
  std::thread worker_;
};

}  // namespace moed
