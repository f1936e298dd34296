#include "server/rpc/model_change.h"

#include <utility>

namespace moed {
namespace {

constexpr int64_t kTellNanos = 200'000'000;

}  // namespace

std::string_view PhaseName(ChangePhase phase) {
  static constexpr std::string_view kNames[] = {"checking", "unloading", "reading", "starting", "ready"};
  return kNames[static_cast<size_t>(phase)];
}

void ModelChange::Enter(ChangePhase phase, uint64_t all_bytes) {
  {
    absl::MutexLock lock(&mutex_);
    state_.phase = phase;
    state_.done_bytes = 0;
    state_.all_bytes = all_bytes;
    begin_nanos_ = clock_.NowNanos();
  }
  Tell(true);
}

void ModelChange::AddBytes(uint64_t bytes) {
  {
    absl::MutexLock lock(&mutex_);
    state_.done_bytes += bytes;
  }
  Tell(false);
}

void ModelChange::End(absl::Status status) {
  {
    absl::MutexLock lock(&mutex_);
    state_.ended = true;
    state_.status = std::move(status);
  }
  Tell(true);
}

absl::Status ModelChange::CheckCancelled() const {
  absl::MutexLock lock(&mutex_);
  return cancelled_;
}

void ModelChange::Cancel(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  cancelled_.Update(std::move(status));
}

ModelChange::State ModelChange::Now() const {
  absl::MutexLock lock(&mutex_);
  State state = state_;
  state.seconds = SecondsBetween(begin_nanos_, clock_.NowNanos());
  return state;
}

void ModelChange::Watch(std::weak_ptr<Watcher> watcher) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(watchers_, [](const auto& other) { return other.expired(); });
  watchers_.push_back(std::move(watcher));
}

void ModelChange::Tell(bool at_once) {
  std::vector<std::shared_ptr<Watcher>> watchers;
  {
    absl::MutexLock lock(&mutex_);
    const int64_t now = clock_.NowNanos();
    if (!at_once && now - told_nanos_ < kTellNanos) return;
    told_nanos_ = now;
    ++state_.version;
    for (const auto& watcher : watchers_) {
      if (auto locked = watcher.lock()) watchers.push_back(std::move(locked));
    }
  }
  for (const auto& watcher : watchers) watcher->OnChange();
}

}  // namespace moed
