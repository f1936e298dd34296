#include "core/expert/cache/cache.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/expert/cache/prefetch_plan.h"
#include "core/store/layout.h"

namespace moed {
namespace {

std::vector<uint64_t> RecordBytes(const StoreDescription& store) {
  std::vector<uint64_t> bytes;
  for (const ExpertLayout& layout : store.precisions) bytes.push_back(layout.record_bytes);
  return bytes;
}

ExpertStats EmptyStats(const StoreDescription& store) {
  ExpertStats stats;
  for (const LayerId layer : store.moe_layers) {
    stats.layers.push_back({.layer = layer, .resident = std::vector<uint32_t>(store.precisions.size())});
  }
  stats.load_bytes.resize(store.precisions.size());
  stats.evictions.resize(store.precisions.size());
  return stats;
}

}  // namespace

// What a mask, a rule or a plan may see. Lives only while the cache's lock is held.
struct ExpertCache::Residents final : ResidencyView {
  explicit Residents(const ExpertCache& owner) : cache(owner) {}
  bool Resident(CachedKey key) const override { return StateOf(key) == SlotState::kResident; }
  bool Loading(CachedKey key) const override { return StateOf(key) == SlotState::kLoading; }

  SlotState StateOf(const CachedKey& key) const {
    cache.mutex_.AssertHeld();
    const Slot* slot = cache.by_key_[cache.index_.Of(key)];
    return slot == nullptr ? SlotState::kFree : slot->state;
  }
  const ExpertCache& cache;
};

ExpertCache::ExpertCache(const CacheParts& parts, std::unique_ptr<EvictionPolicy> policy, uint64_t capacity_bytes,
                         const LoaderOptions& reading)
    : store_(parts.store),
      clock_(parts.clock),
      trace_(parts.trace),
      index_(store_.description().moe_layers, store_.description().experts_per_layer,
             static_cast<int>(store_.description().precisions.size())),
      largest_record_bytes_(LargestRecordBytes(store_.description())),
      most_wanted_first_(parts.most_wanted_first),
      policy_(std::move(policy)),
      pool_(parts.allocator, capacity_bytes),
      by_key_(index_.size()),
      uses_(index_.size()),
      fill_(parts.fill),
      prices_(RecordBytes(store_.description())),
      stats_(EmptyStats(store_.description())),
      loader_(store_, parts.reads, clock_, trace_, reading, *this) {
  MOED_CHECK(capacity_bytes >= largest_record_bytes_);
  absl::MutexLock lock(&mutex_);
  StartFill();
}

ExpertCache::~ExpertCache() {
  absl::MutexLock lock(&mutex_);
  MOED_CHECK(handles_ == 0);
  closing_ = true;
}

uint64_t ExpertCache::TableBytes(const StoreDescription& store) {
  const uint64_t keys = store.moe_layers.size() * store.experts_per_layer * store.precisions.size();
  return keys * (sizeof(Slot*) + sizeof(uint64_t) + sizeof(Slot) + 3 * sizeof(void*) + sizeof(CachedKey) + 1);
}

void ExpertCache::StartSequence(SequenceId sequence) {
  absl::MutexLock lock(&mutex_);
  const bool is_new = sequences_.try_emplace(sequence).second;
  MOED_CHECK(is_new);
  policy_->OnSequenceStart(sequence);
}

void ExpertCache::EndSequence(SequenceId sequence) {
  absl::MutexLock lock(&mutex_);
  const size_t erased = sequences_.erase(sequence);
  MOED_CHECK(erased == 1);
  std::erase(sessions_, sequence);
  policy_->OnSequenceEnd(sequence);
}

void ExpertCache::OnToken(SequenceId sequence, TokenId token) {
  absl::MutexLock lock(&mutex_);
  policy_->OnToken(sequence, token);
}

void ExpertCache::OnRouted(const LayerRouting& routing) {
  absl::MutexLock lock(&mutex_);
  policy_->OnRouted(routing);
}

void ExpertCache::Inspect(absl::FunctionRef<void(const ResidencyView&, const TimingMeter&)> look) const {
  absl::MutexLock lock(&mutex_);
  look(Residents(*this), prices_);
}

void ExpertCache::BeginLayer(const LayerRouting& routing, const WantedSet& wanted, std::span<const Action> actions,
                             std::span<const float> lost) {
  Cancels cancels;
  {
    absl::MutexLock lock(&mutex_);
    MOED_CHECK(handed_out_ == items_.size() && actions.size() == wanted.experts().size());
    ++layers_begun_;
    layer_ = routing.layer;
    planned_.clear();
    phase_ = wanted.phase();
    sessions_.assign(wanted.sessions().begin(), wanted.sessions().end());
    items_.clear();
    handed_out_ = 0;
    CountLosses(routing, lost);
    for (size_t i = 0; i < actions.size(); ++i) Want(wanted.experts()[i], actions[i], wanted.UsesOf(i), wanted.PhaseOf(i));
    if (most_wanted_first_ && phase_ == Phase::kPrefill) {
      const auto more_tokens = [this](int a, int b)
                                   ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return items_[a].tokens > items_[b].tokens; };
      std::stable_sort(waiting_.begin(), waiting_.end(), more_tokens);
    }
    const auto passed = [now = layers_begun_](const Slot& guess) { return guess.due_at <= now; };
    CancelGuesses(cancels, passed);
    StartWaitingDemands(cancels);
    demands_reading_ = DemandsLeft();
    const int64_t now = clock_.NowNanos();
    pace_.OnLayer(now, demands_reading_);
    prices_.OnLayer(index_.Position(layer_), phase_, now, stalled_nanos_);
  }
  RunCancels(cancels);
}

void ExpertCache::CountLosses(const LayerRouting& routing, std::span<const float> lost) {
  MOED_CHECK(lost.size() == routing.tokens.size());
  LayerStats& stats = stats_.layers[index_.Position(layer_)];
  SequenceCounters* counters = nullptr;
  for (size_t t = 0; t < lost.size(); ++t) {
    const TokenRouting& token = routing.tokens[t];
    if (t == 0 || token.sequence != routing.tokens[t - 1].sequence) counters = &CountersOf(token.sequence);
    ++counters->routed_tokens;
    ++stats.tokens;
    counters->masked += token.masked;
    stats.masked += token.masked;
    counters->gate_mass_lost += lost[t];
    stats.gate_mass_lost += lost[t];
  }
}

void ExpertCache::Want(const WantedExpert& wanted, const Action& action, std::span<const SequenceUse> uses, Phase phase) {
  LayerStats& stats = stats_.layers[index_.Position(layer_)];
  if (action.kind == ActionKind::kSkip) {
    ++stats.skipped;
    for (const SequenceUse& use : uses) ++CountersOf(use.sequence).skipped;
    return;
  }
  const CachedKey key{layer_, wanted.expert, action.precision};
  const size_t index = index_.Of(key);
  Slot* slot = by_key_[index];
  const bool hit = slot != nullptr && slot->state == SlotState::kResident;
  const LookupResult result = hit ? LookupResult::kHit : slot != nullptr ? LookupResult::kInflight : LookupResult::kMiss;
  const bool lowered = action.precision != kReferencePrecision;
  ++stats.lookups[EnumIndex(phase)][EnumIndex(result)];
  ++uses_[index];
  stats.lowered += lowered;
  for (const SequenceUse& use : uses) {
    SequenceCounters& counters = CountersOf(use.sequence);
    ++(hit ? counters.hits : counters.misses);
    counters.lowered += lowered;
    policy_->OnAccess(key, {use.sequence, use.probability, use.rank, use.phase, hit});
  }
  const int item = static_cast<int>(items_.size());
  items_.push_back({.key = key, .sequence = uses.front().sequence, .tokens = wanted.tokens});
  if (slot != nullptr) {
    Join(*slot, item);
  } else {
    waiting_.push_back(item);
  }
}

void ExpertCache::Join(Slot& slot, int item) {
  ++slot.pins;
  slot.wanted_at = layers_begun_;
  items_[item].slot = &slot;
  const bool loading = slot.state == SlotState::kLoading;
  if (slot.unused_guess) ForgetGuess(slot, loading ? PrefetchOutcome::kLate : PrefetchOutcome::kUsed);
  if (slot.unused_fill) {
    ForgetFill(slot);
    policy_->OnInsert(slot.key, slot.bytes.size());
  }
  if (loading) loader_.Promote(slot.tickets);
  if (slot.arrived & 1) {
    ready_.push_back(item);
  } else {
    slot.item = item;
  }
}

void ExpertCache::Prefetch(std::span<const Guess> guesses, const PrefetchBudget& budget) {
  absl::MutexLock lock(&mutex_);
  if (budget.keep_guessed) KeepGuessed(guesses);
  if (!waiting_.empty()) return;
  planned_ = PlanPrefetch(Residents(*this), guesses, budget);
  budget_ = budget;
  StartGuesses();
}

float ExpertCache::LeastGuess() const {
  absl::MutexLock lock(&mutex_);
  return pace_.LeastProbability();
}

std::optional<ReadyExpert> ExpertCache::Next(bool wait) {
  Cancels cancels;
  std::optional<ReadyExpert> ready;
  {
    absl::MutexLock lock(&mutex_);
    if (wait && handed_out_ == items_.size()) prices_.OnExpertsDone(clock_.NowNanos(), stalled_nanos_);
    if (handed_out_ == items_.size()) StartFill();
    if (handed_out_ == items_.size() || (!wait && ready_.empty())) return std::nullopt;
    const auto is_ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !ready_.empty(); };
    AwaitCounted(absl::Condition(&is_ready), -1);
    Item& item = items_[ready_.front()];
    ready_.pop_front();
    ++handed_out_;
    ready = HandOut(item);
    if (!ready->status.ok()) StartWaitingDemands(cancels);
  }
  RunCancels(cancels);
  return ready;
}

// A record whose end failed after its beginning had arrived is a failed one.
ReadyExpert ExpertCache::HandOut(Item& item) {
  ReadyExpert ready{.expert = item.key.expert, .precision = item.key.precision, .status = item.status};
  if (item.slot == nullptr) return ready;
  if (item.slot->state == SlotState::kFailed) {
    ready.status = item.slot->status;
    DropPin(*item.slot);
    return ready;
  }
  if (item.read_bytes > 0) CountersOf(item.sequence).bytes_read += item.read_bytes;
  ++handles_;
  ready.handle = ExpertHandle(item.slot);
  return ready;
}

absl::StatusOr<PartBytes> ExpertCache::WaitPart(Slot& slot, ExpertPart part) {
  absl::MutexLock lock(&mutex_);
  const auto settled = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return HasPart(slot, part) || slot.state == SlotState::kFailed;
  };
  AwaitCounted(absl::Condition(&settled), slot.key.expert);
  if (!HasPart(slot, part)) return slot.status;
  const ExpertSegment& segment = store_.description().precisions[slot.key.precision].segments[EnumIndex(part)];
  return PartBytes{.bytes = slot.bytes.subspan(segment.offset, segment.bytes)};
}

bool ExpertCache::Settled(const Slot& slot, ExpertPart part) const {
  absl::MutexLock lock(&mutex_);
  return HasPart(slot, part) || slot.state == SlotState::kFailed;
}

bool ExpertCache::HasPart(const Slot& slot, ExpertPart part) const {
  for (int read = 0; read < loader_.ReadsOf(slot.key.precision); ++read) {
    if (loader_.Covers(slot.key.precision, read, part)) return (slot.arrived >> read) & 1;
  }
  return false;
}

void ExpertCache::AwaitCounted(const absl::Condition& condition, int32_t expert) {
  if (condition.Eval()) return;
  const int64_t begin = clock_.NowNanos();
  mutex_.Await(condition);
  const int64_t end = clock_.NowNanos();
  const double seconds = SecondsBetween(begin, end);
  stalled_nanos_ += end - begin;
  stats_.stall_seconds[EnumIndex(phase_)] += seconds;
  stats_.layers[index_.Position(layer_)].stall_seconds += seconds;
  for (const SequenceId sequence : sessions_) CountersOf(sequence).stall_seconds += seconds;
  if (trace_ != nullptr) trace_->Add({"wait", kComputeTrack, begin, end, layer_.value(), expert});
}

void ExpertCache::Unpin(Slot& slot) {
  Cancels cancels;
  {
    absl::MutexLock lock(&mutex_);
    --handles_;
    DropPin(slot);
    StartWaitingDemands(cancels);
    if (!planned_.empty()) StartGuesses();
  }
  RunCancels(cancels);
}

void ExpertCache::DropPin(Slot& slot) {
  MOED_CHECK(slot.pins > 0);
  const bool leaves = slot.state == SlotState::kFailed || slot.bypass;
  if (--slot.pins == 0 && slot.reads_left == 0 && leaves) Release(slot);
}

SequenceCounters& ExpertCache::CountersOf(SequenceId sequence) {
  const auto found = sequences_.find(sequence);
  MOED_CHECK(found != sequences_.end());
  return found->second;
}

SequenceCounters ExpertCache::sequence_counters(SequenceId sequence) const {
  absl::MutexLock lock(&mutex_);
  const auto found = sequences_.find(sequence);
  return found == sequences_.end() ? SequenceCounters() : found->second;
}

ExpertStats ExpertCache::Stats() const {
  absl::MutexLock lock(&mutex_);
  ExpertStats now = stats_;
  now.cache_bytes = pool_.touched_bytes();
  now.cache_capacity_bytes = pool_.capacity_bytes();
  now.read_busy_nanos = loader_.stats().busy_nanos;
  return now;
}

absl::Status ExpertCache::SaveLearned(const LearnedFile& file, ExpertPredictor& predictor) {
  absl::MutexLock lock(&mutex_);
  return moed::SaveLearned(file, *policy_, predictor);
}

std::vector<ExpertHeat> ExpertCache::Hottest(int top) const {
  absl::MutexLock lock(&mutex_);
  std::vector<size_t> order;
  for (size_t i = 0; i < uses_.size(); ++i) {
    if (uses_[i] > 0) order.push_back(i);
  }
  const size_t count = std::min(order.size(), static_cast<size_t>(std::max(top, 0)));
  const auto hotter = [this](size_t a, size_t b)
                          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return uses_[a] != uses_[b] ? uses_[a] > uses_[b] : a < b; };
  std::partial_sort(order.begin(), order.begin() + count, order.end(), hotter);
  std::vector<ExpertHeat> hottest;
  for (const size_t i : std::span(order).first(count)) {
    hottest.push_back({index_.KeyAt(i), uses_[i], by_key_[i] != nullptr && by_key_[i]->state == SlotState::kResident});
  }
  return hottest;
}

}  // namespace moed
