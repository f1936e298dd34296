// Whose turn it is: the order of live_, and what of the engine's work its tenants are told.
#include <algorithm>

#include "core/engine/step_loop.h"

namespace moed {

std::vector<TurnEntry> StepLoop::TurnEntries() const {
  std::vector<TurnEntry> entries;
  entries.reserve(live_.size());
  for (const auto& live : live_) {
    entries.push_back({live->owner, live->request.priority, live->running, UsesPrefixes(*live), std::max(1, live->Pending())});
  }
  return entries;
}

int StepLoop::TakeTurns() {
  NoteHeavyTenants();
  GiveWay();
  const auto waiting = std::stable_partition(live_.begin(), live_.end(), [](const auto& live) { return live->running; });
  const auto earlier = [](const auto& a, const auto& b) { return a->id < b->id; };
  if (!std::is_sorted(waiting, live_.end(), earlier)) std::sort(waiting, live_.end(), earlier);
  // Where room is short the last ones give way.
  if (turns_.limits_kv()) {
    std::stable_partition(live_.begin(), waiting, [this](const auto& live) { return !turns_.Heavy(live->owner); });
  }
  const auto running = static_cast<int>(waiting - live_.begin());
  std::vector<size_t> next = turns_.Next(TurnEntries(), max_running_ - running);
  for (size_t i = 0; i < next.size(); ++i) {
    const auto place = live_.begin() + running + static_cast<std::ptrdiff_t>(i);
    const auto taken = live_.begin() + static_cast<std::ptrdiff_t>(next[i]);
    std::rotate(place, taken, taken + 1);
    for (size_t later = i + 1; later < next.size(); ++later) next[later] += next[later] < next[i] ? 1 : 0;
  }
  return running + static_cast<int>(next.size());
}

// A tenant without a place does not wait for the end of another one's long answers.
void StepLoop::GiveWay() {
  const auto running = std::count_if(live_.begin(), live_.end(), [](const auto& live) { return live->running; });
  if (running < max_running_ || static_cast<size_t>(running) == live_.size()) return;
  if (const auto gives_way = turns_.GivesWay(TurnEntries(), max_running_)) Preempt(*live_[*gives_way]);
}

// Pages count once for each tenant, whoever of its sequences holds them.
void StepLoop::NoteHeavyTenants() {
  if (!turns_.limits_kv()) return;
  std::vector<int> pages(turns_.tenants(), 0);
  std::vector<bool> seen(static_cast<size_t>(parts_.kv.pages()), false);
  const auto count = [&](const Sequence& sequence) {
    if (sequence.owner >= pages.size()) return;
    for (const int32_t page : sequence.kv.pages) {
      if (!seen[static_cast<size_t>(page)]) ++pages[sequence.owner];
      seen[static_cast<size_t>(page)] = true;
    }
  };
  for (const auto& live : live_) count(*live->sequence);
  intake_.ForEachIdle(count);
  std::vector<bool> heavy(pages.size(), false);
  for (size_t owner = 0; owner < pages.size(); ++owner) {
    const auto& percent = turns_.limits(owner).kv_percent;
    heavy[owner] = percent && int64_t{100} * pages[owner] > int64_t{*percent} * parts_.kv.pages();
  }
  turns_.SetHeavy(std::move(heavy));
}

void StepLoop::PublishRunning() {
  std::vector<int> by_owner(turns_.tenants(), 0);
  for (const auto& live : live_) by_owner[live->owner] += live->running ? 1 : 0;
  if (by_owner == running_by_owner_) return;
  intake_.SetRunning(by_owner);
  running_by_owner_ = std::move(by_owner);
}

void StepLoop::MeasureStep(int64_t nanos) {
  int tokens = 0, prefilled = 0;
  for (const SequenceChunk& chunk : chunks_) {
    tokens += static_cast<int>(chunk.tokens.size());
    prefilled += chunk.phase == Phase::kPrefill ? static_cast<int>(chunk.tokens.size()) : 0;
  }
  pace_.OnStep(tokens, prefilled, nanos);
}

std::optional<double> StepLoop::PrefillSeconds(int tokens) const {
  absl::MutexLock lock(&stats_mutex_);
  return published_pace_.PrefillSeconds(tokens, max_step_tokens_);
}

}  // namespace moed
