#include "server/served_cache.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/base/byte_size.h"
#include "core/base/retry_after.h"
#include "core/base/status.h"
#include "server/startup/default_budget.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

constexpr size_t kMostTasks = 16;

// What fails is the operation's error: the thread goes on.
template <class Body>
auto Guarded(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception& error) {
    return Internal("the operation failed: ", error.what());
  }
}

std::vector<CachedKey> AtReference(std::span<const ExpertKey> experts) {
  std::vector<CachedKey> keys;
  for (const ExpertKey& expert : experts) keys.push_back({expert.layer, expert.expert, kReferencePrecision});
  return keys;
}

}  // namespace

ServedCache::ServedCache(ProviderBuilder& experts, Engine& engine, const MemoryPlan& plan, uint64_t most_budget)
    : experts_(experts), engine_(engine), most_budget_(most_budget), plan_(plan), largest_budget_(plan.budget), worker_([this] {
        Work();
      }) {}

void ServedCache::End() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  if (worker_.joinable()) worker_.join();
}

MemoryPlan ServedCache::plan() const {
  absl::MutexLock lock(&mutex_);
  return plan_;
}

std::optional<uint64_t> ServedCache::resized_budget() const {
  absl::MutexLock lock(&mutex_);
  return resized_budget_;
}

uint64_t ServedCache::largest_budget() const {
  absl::MutexLock lock(&mutex_);
  return largest_budget_;
}

absl::Status ServedCache::Resize(uint64_t budget_bytes, std::function<void(const absl::Status&)> done) {
  if (budget_bytes > most_budget_) {
    return FailedPrecondition("a memory budget of ", budget_bytes, " bytes (", FormatBytes(budget_bytes), "): at most ",
                              most_budget_, " (", FormatBytes(most_budget_), ") are reserved, see --max-memory-budget");
  }
  if (budget_bytes > plan().budget) MOED_RETURN_IF_ERROR(CheckMachineHas(budget_bytes, kBesideBudgetBytes));
  // An exception leaves the cache half resized: the engine ends with it.
  return engine_.BetweenSteps([this, budget_bytes, done = std::move(done)] {
    absl::Status resized;
    std::exception_ptr failure;
    try {
      resized = ResizeNow(budget_bytes);
    } catch (const std::exception& error) {
      failure = std::current_exception();
      resized = Internal("the cache could not be resized: ", error.what());
    }
    done(resized);
    if (failure) std::rethrow_exception(failure);
  });
}

absl::Status ServedCache::ResizeNow(uint64_t budget_bytes) {
  const MemoryPlan before = plan();
  absl::StatusOr<MemoryPlan> resized = ResizePlan(before, budget_bytes);
  if (!resized.ok()) return FailedPrecondition(resized.status().message());
  if (resized->cache != before.cache) MOED_RETURN_IF_ERROR(experts_.provider().Resize(resized->cache));
  spdlog::info("memory budget {} after {}: the expert cache holds {} after {}", FormatBytes(budget_bytes),
               FormatBytes(before.budget), FormatBytes(resized->cache), FormatBytes(before.cache));
  absl::MutexLock lock(&mutex_);
  plan_ = *std::move(resized);
  resized_budget_ = budget_bytes;
  largest_budget_ = std::max(largest_budget_, budget_bytes);
  return absl::OkStatus();
}

absl::Status ServedCache::Pin(std::span<const ExpertKey> experts) {
  MOED_RETURN_IF_ERROR(experts_.CheckChoosesFreely("PinExperts"));
  return experts_.provider().Pin(AtReference(experts));
}

void ServedCache::Unpin(std::span<const ExpertKey> experts) { experts_.provider().Unpin(AtReference(experts)); }

std::vector<ExpertKey> ServedCache::Pinned() const {
  std::vector<ExpertKey> experts;
  for (const CachedKey& key : experts_.provider().Pinned()) experts.push_back(key.expert_key());
  return experts;
}

absl::StatusOr<size_t> ServedCache::Prefetch(std::span<const ExpertKey> experts) {
  MOED_RETURN_IF_ERROR(experts_.CheckChoosesFreely("PrefetchExperts"));
  return experts_.provider().Prefetch(AtReference(experts));
}

absl::Status ServedCache::WriteLearned() {
  return experts_.KeepLearned([this](std::function<void()> task) { return engine_.BetweenSteps(std::move(task)); });
}

void ServedCache::KeepLearned() {
  const absl::Status posted = Later([this] {
    const absl::Status kept = Guarded([this] { return WriteLearned(); });
    if (!kept.ok()) spdlog::warn("{}", StrCat(kept.message()));
  });
  if (!posted.ok()) spdlog::warn("--learned-state: {}", StrCat(posted.message()));
}

// Where there is no room among the tasks, there is the next time.
void ServedCache::KeepResidency() {
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(residency_waits_, true)) return;
  }
  if (Later([this] { WriteResidency(); }).ok()) return;
  absl::MutexLock lock(&mutex_);
  residency_waits_ = false;
}

void ServedCache::WriteResidency() {
  {
    absl::MutexLock lock(&mutex_);
    residency_waits_ = false;
  }
  const absl::Status kept = Guarded([this] { return experts_.KeepResidency(); });
  if (!kept.ok() && residency_kept_.ok()) spdlog::warn("{}", StrCat(kept.message()));
  residency_kept_ = kept;
}

absl::Status ServedCache::SaveResidency(Counted done) {
  MOED_RETURN_IF_ERROR(experts_.CheckKeepsResidency());
  return Later([this, done = std::move(done)] {
    done(Guarded([&]() -> absl::StatusOr<size_t> {
      MOED_RETURN_IF_ERROR(experts_.KeepResidency());
      MOED_RETURN_IF_ERROR(WriteLearned());
      return experts_.kept_records();
    }));
  });
}

absl::Status ServedCache::RestoreResidency(Counted done) {
  MOED_RETURN_IF_ERROR(experts_.CheckKeepsResidency());
  return Later([this, done = std::move(done)] {
    done(Guarded([&]() -> absl::StatusOr<size_t> {
      MOED_ASSIGN_OR_RETURN(const std::vector<CachedKey> records, experts_.ReadKeptResidency());
      return experts_.provider().Prefetch(records);
    }));
  });
}

absl::Status ServedCache::Later(std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  if (ending_) return absl::UnavailableError("the model is being taken out");
  if (tasks_.size() == kMostTasks)
    return RetryAfter(ResourceExhausted(kMostTasks, " others wait for the residency file"), kRetrySeconds);
  tasks_.push_back(std::move(task));
  return absl::OkStatus();
}

void ServedCache::Work() {
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ending_ || !tasks_.empty(); };
  for (;;) {
    std::function<void()> task;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&has_work));
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace moed
