// Whose turn it is: the order of live_, and what of the engine's work its tenants are told.
#include <algorithm>
#include <climits>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/base/retry_after.h"
#include "core/engine/step_loop.h"

namespace moed {
namespace {

// A prediction has to be so many times too late before somebody is turned away for it.
constexpr double kDoubt = 2;

}  // namespace

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
  const LiveRequest* const gave_way = GiveWay();
  const auto waiting = std::stable_partition(live_.begin(), live_.end(), [](const auto& live) { return live->running; });
  const auto earlier = [](const auto& a, const auto& b) { return a->id < b->id; };
  if (!std::is_sorted(waiting, live_.end(), earlier)) std::sort(waiting, live_.end(), earlier);
  // Where room is short the last ones give way.
  if (turns_.limits_kv()) {
    std::stable_partition(live_.begin(), waiting, [this](const auto& live) { return !turns_.Heavy(live->owner); });
  }
  std::stable_partition(live_.begin(), waiting, [](const auto& live) { return !live->overtook; });
  const auto running = static_cast<int>(waiting - live_.begin());
  std::vector<TurnEntry> entries = TurnEntries();
  for (size_t i = 0; i < entries.size(); ++i) entries[i].gave_way = live_[i].get() == gave_way;
  std::vector<size_t> next = turns_.Next(entries, max_running_ - running);
  for (size_t i = 0; i < next.size(); ++i) {
    const auto place = live_.begin() + running + static_cast<std::ptrdiff_t>(i);
    const auto taken = live_.begin() + static_cast<std::ptrdiff_t>(next[i]);
    std::rotate(place, taken, taken + 1);
    for (size_t later = i + 1; later < next.size(); ++later) next[later] += next[later] < next[i] ? 1 : 0;
  }
  return running + static_cast<int>(next.size());
}

// They become the last ones of those that run.
void StepLoop::LetOvertake(const BatchPlan& plan) {
  auto place = live_.begin() + plan.running - static_cast<std::ptrdiff_t>(plan.overtaking.size());
  for (const int overtakes : plan.overtaking) {
    const auto taken = live_.begin() + overtakes;
    (*taken)->overtook = true;
    std::rotate(place++, taken, taken + 1);
  }
}

// A tenant without a place does not wait for the end of another one's long answers, where there is a prefix cache to keep what
// they have. Returns who gave way, or null.
const LiveRequest* StepLoop::GiveWay() {
  const auto running = std::count_if(live_.begin(), live_.end(), [](const auto& live) { return live->running; });
  if (!prefixes_ || running < max_running_ || static_cast<size_t>(running) == live_.size()) return nullptr;
  const auto gives_way = turns_.GivesWay(TurnEntries(), max_running_);
  if (!gives_way) return nullptr;
  Preempt(*live_[*gives_way]);
  return live_[*gives_way].get();
}

// Each request is judged once, when it comes.
void StepLoop::EndHopeless() {
  const auto is_new = [](const auto& live) { return !live->judged && live->request.deadline_nanos > 0; };
  if (std::none_of(live_.begin(), live_.end(), is_new)) return;
  const auto running = std::count_if(live_.begin(), live_.end(), [](const auto& live) { return live->running; });
  const std::vector<size_t> turns = turns_.Next(TurnEntries(), INT_MAX);
  std::vector<std::pair<LiveRequest*, absl::Status>> hopeless;
  for (size_t turn = 0; turn < turns.size(); ++turn) {
    LiveRequest& live = *live_[turns[turn]];
    if (live.judged || live.request.deadline_nanos == 0) continue;
    live.judged = true;
    const int before = static_cast<int>(turn) - (max_running_ - static_cast<int>(running)) + 1;
    if (absl::Status status = CheckDeadline(live, std::max(0, before)); !status.ok()) hopeless.emplace_back(&live, status);
  }
  for (auto& [live, status] : hopeless) Finish(*live, std::move(status), FinishReason::kStop);
}

// Until `before` of the others have ended: each takes what the last requests took, and all no longer than what they still need.
double StepLoop::WaitSeconds(const LiveRequest& live, int before) const {
  double tokens = 0;
  for (const auto& other : live_) {
    if (other.get() != &live) tokens += other->Pending() + (other->answer ? other->answer->most_left() : 0);
  }
  return std::min(before * pace_.SecondsPerEnd(), pace_.SecondsFor(tokens));
}

// `before`: requests whose ends it has to wait for.
absl::Status StepLoop::CheckDeadline(const LiveRequest& live, int before) {
  const double left = SecondsBetween(parts_.clock.NowNanos(), live.request.deadline_nanos);
  const int tokens = UnknownTokens(live);
  const std::optional<double> computed = pace_.PrefillSeconds(tokens, max_step_tokens_);
  std::optional<double> read;
  if (parts_.cold_seconds && FidelityOf(live) == Fidelity::Exact()) read = parts_.cold_seconds(tokens);
  const double prefill = std::max(computed.value_or(0), read.value_or(0));
  const double wait = WaitSeconds(live, before);
  if ((wait + prefill) / kDoubt <= left) return absl::OkStatus();
  const std::string message = absl::StrFormat(
      "the deadline is in %.1f s, and the first token would take about %.1f s: %.1f s until %d requests have ended, %.1f s for "
      "%d "
      "tokens of the prompt, of which reading experts is %.1f s",
      std::max(0., left), wait + prefill, wait, before, prefill, tokens, read.value_or(0));
  if (prefill / kDoubt > left) return absl::DeadlineExceededError(message);
  return RetryAfter(absl::ResourceExhaustedError(message), wait);
}

// Tokens of its prompt that have to be computed for all that is known here.
int StepLoop::UnknownTokens(const LiveRequest& live) {
  int known = live.sequence->kv.length;
  if (parts_.spill) known = std::max(known, std::min(live.sequence->computed, live.Goal() - 1));  // it may be on disk
  if (UsesPrefixes(live)) {
    OwnedTokens tokens = Owned(*live.sequence);
    tokens.tokens = tokens.tokens.first(static_cast<size_t>(live.Goal() - 1));
    known = std::max(known, prefixes_->Find(tokens, FidelityOf(live)).length);
  }
  if (UsesSources(live) && sources_->Find(SourceOf(live), FidelityOf(live))) known = live.shared_tokens;
  return std::max(1, live.Goal() - known);
}

// Pages count once for each tenant, whoever of its sequences holds them.
std::vector<int> StepLoop::CountPagesOfTenants() {
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
  intake_.VisitIdle([&](Sequence& idle) {
    count(idle);
    return true;
  });
  return pages;
}

// What a tenant only remembers costs nobody his place, but goes before what others remember.
void StepLoop::NoteHeavyTenants() {
  if (!turns_.limits_kv()) return;
  const std::vector<int> held = CountPagesOfTenants();
  std::vector<int> surplus = prefixes_ ? prefixes_->CountRemembered(held.size()) : std::vector<int>(held.size(), 0);
  std::vector<bool> heavy(held.size(), false);
  for (size_t owner = 0; owner < held.size(); ++owner) {
    const int percent = turns_.limits(owner).kv_percent.value_or(100);
    const auto share = static_cast<int>(int64_t{percent} * parts_.kv.pages() / 100);
    heavy[owner] = held[owner] > share;
    surplus[owner] = std::min(surplus[owner], held[owner] + surplus[owner] - share);
  }
  turns_.SetHeavy(std::move(heavy));
  if (prefixes_) prefixes_->GoFirst(std::move(surplus));
}

void StepLoop::PublishRunning() {
  std::vector<CountsByPriority> by_owner(turns_.tenants());
  for (const auto& live : live_) {
    by_owner[live->owner][static_cast<size_t>(live->request.priority)] += live->running ? 1 : 0;
  }
  if (by_owner == running_by_owner_) return;
  intake_.SetRunning(by_owner);
  running_by_owner_ = std::move(by_owner);
}

double StepLoop::WaitedSeconds() const { return parts_.provider.sequence_counters(chunks_.front().sequence).stall_seconds; }

void StepLoop::MeasureStep(int64_t nanos, bool scores, double waited_seconds) {
  int tokens = 0, prefilled = 0;
  for (const SequenceChunk& chunk : chunks_) {
    tokens += static_cast<int>(chunk.tokens.size());
    prefilled += chunk.phase == Phase::kPrefill ? static_cast<int>(chunk.tokens.size()) : 0;
  }
  pace_.OnStep(tokens, prefilled, nanos);
  if (prefilled == 0) return;
  const double seconds = static_cast<double>(nanos) * 1e-9;
  if (prefilled == tokens) return prompt_step_.OnStep(tokens, seconds, waited_seconds);
  shared_step_.OnStep(tokens, seconds, waited_seconds);
  if (scores) scored_step_.OnStep(tokens, seconds, waited_seconds);
}

std::optional<double> StepLoop::PrefillSeconds(int tokens) const {
  absl::MutexLock lock(&stats_mutex_);
  return published_pace_.PrefillSeconds(tokens, max_step_tokens_);
}

}  // namespace moed
