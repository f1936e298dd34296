#include "core/expert/cache/cache.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/expert/cache/prefetch_plan.h"
#include "core/store/layout.h"

namespace moed {
namespace {

// By precision, in the mean.
std::vector<uint64_t> RecordBytes(const StoreDescription& store) {
  const uint64_t experts = store.moe_layers.size() * static_cast<uint64_t>(store.experts_per_layer);
  std::vector<uint64_t> bytes;
  for (size_t p = 0; p < store.precisions.size(); ++p) {
    bytes.push_back(AllRecordBytes(store, static_cast<Precision>(p)) / experts);
  }
  return bytes;
}

// Of a guess that gives way: as much of its pieces in flight as is left in the mean.
double ShareBehindWhichDemandsWait(uint64_t record_bytes, const ReadQueueOptions& reading) {
  const double left = 0.5 * kIdlePiecesInFlight * static_cast<double>(reading.idle_piece_bytes);
  return std::min(1.0, left / static_cast<double>(record_bytes));
}

ExpertIndex IndexOf(const StoreDescription& store, int encoder_positions) {
  return {store.moe_layers, store.experts_per_layer, static_cast<int>(store.precisions.size()), encoder_positions};
}

}  // namespace

ExpertCache::ExpertCache(const CacheParts& parts, std::unique_ptr<EvictionPolicy> policy, const CacheSize& size,
                         const LoaderOptions& reading)
    : store_(parts.store),
      clock_(parts.clock),
      trace_(parts.trace),
      most_wanted_first_(parts.most_wanted_first),
      whole_layers_(parts.whole_layers),
      largest_record_bytes_(LargestRecordBytes(store_.description())),
      least_bytes_(std::max(size.least_bytes, largest_record_bytes_)),
      residency_(IndexOf(store_.description(), parts.encoder_positions)),
      policy_(std::move(policy)),
      learner_(*policy_),
      slots_(residency_, *this),
      filler_(parts.fill, parts.known),
      anchors_(residency_.index(), store_),
      asked_(residency_.index()),
      room_(parts.allocator, size.capacity_bytes, size.most_bytes, largest_record_bytes_, {*policy_, slots_, filler_, anchors_}),
      device_(parts.device.allocator == nullptr
                  ? nullptr
                  : std::make_unique<DeviceTier>(parts.device, largest_record_bytes_, room_.pool(), *policy_, slots_, filler_)),
      cooperation_(parts.device.bring_seconds_per_byte > 0 ? std::optional<Cooperation>(parts.device.bring_seconds_per_byte)
                                                           : std::nullopt),
      table_memory_(parts.allocator),
      guesses_(PrefetchPace(ShareBehindWhichDemandsWait(largest_record_bytes_, reading.queue))),
      statistics_(store_.description()),
      timing_(RecordBytes(store_.description())),
      loader_(store_, parts.reads, clock_, trace_, reading, *this) {}

absl::Status ExpertCache::Open() {
  CountedLock lock(mutex_);
  if (device_ != nullptr) {
    MOED_RETURN_IF_ERROR(room_.pool().Allocate());
    MOED_RETURN_IF_ERROR(device_->Allocate());
  }
  StartIdleReads();
  return absl::OkStatus();
}

ExpertCache::~ExpertCache() {
  handed_out_.clear();
  CountedLock lock(mutex_);
  MOED_CHECK(handles_ == 0);
  closing_ = true;
}

// Of each key: what Slots keeps, its state and counts, its place in the order of fills and, once begun, among the unused ones, in
// the plan of guesses and among those on their way, whether its reads were verified, whether it is anchored or asked for. Of each
// expert: the marks of the score. Of each expert of a layer: its item and its hand-out. Vectors that grow may have room for twice
// what they hold.
uint64_t ExpertCache::TableBytes(const StoreDescription& store) {
  const uint64_t experts = store.moe_layers.size() * store.experts_per_layer;
  const uint64_t keys = experts * store.precisions.size();
  const uint64_t a_key = 3 * sizeof(CachedKey) + 4 * sizeof(Slot*) + 2 * sizeof(uint8_t) + AskedReads::kBytesForKey;
  const uint64_t an_expert = sizeof(uint8_t) + 2 * sizeof(int32_t);
  const uint64_t an_item = 2 * (sizeof(LayerTurn::Item) + sizeof(ReadyExpert));
  return TableOfAllBytes(store.moe_layers.size(), store.experts_per_layer) + Slots::TableBytes(keys) +
         ResidencyTable::TableBytes(keys) + keys * a_key + experts * an_expert + store.experts_per_layer * an_item;
}

uint64_t ExpertCache::table_bytes() const {
  CountedLock lock(mutex_);
  return slots_.memory_bytes() + residency_.memory_bytes() + filler_.memory_bytes() + guesses_.memory_bytes() +
         anchors_.memory_bytes() + asked_.memory_bytes() + turn_.memory_bytes() + statistics_.memory_bytes() +
         loader_.memory_bytes() + table_.size() + handed_out_.capacity() * sizeof(ReadyExpert);
}

void ExpertCache::StartSequence(SequenceId sequence) {
  CountedLock lock(mutex_);
  statistics_.StartSequence(sequence);
  policy_->OnSequenceStart(sequence);
}

void ExpertCache::EndSequence(SequenceId sequence) {
  CountedLock lock(mutex_);
  statistics_.EndSequence(sequence);
  turn_.EndSequence(sequence);
  policy_->OnSequenceEnd(sequence);
}

void ExpertCache::PauseSequence(SequenceId sequence) {
  CountedLock lock(mutex_);
  policy_->OnSequencePause(sequence);
}

void ExpertCache::OnToken(SequenceId sequence, TokenId token) {
  CountedLock lock(mutex_);
  policy_->OnToken(sequence, token);
}

GuessingPace ExpertCache::BeginLayer(const LayerRouting& routing, const DemandSet& demand, Resolve resolve,
                                     std::span<const Action> actions, std::span<const float> lost) {
  MOED_CHECK(left_ == 0 && next_ == handed_out_.size() && actions.size() == demand.experts().size());
  Cancels cancels;
  GuessingPace pace;
  {
    CountedLock lock(mutex_);
    if (experts_done_nanos_) timing_.OnExpertsDone(*std::exchange(experts_done_nanos_, {}), stalled_nanos_);
    resolve(residency_, timing_);
    held_ = false;
    const auto gap = turn_.number() > 0 && IsLast(turn_.layer()) ? PrefetchPace::kBetweenTokens : PrefetchPace::kWithinToken;
    between_tokens_ = false;
    turn_.Begin(routing.layer, demand.phase(), demand.sequences());
    if (cooperation_) cooperation_->BeginLayer(static_cast<int>(routing.tokens.size()));
    guesses_.ForgetPlanned();
    statistics_.CountLosses(routing, lost);
    for (size_t i = 0; i < actions.size(); ++i) Want(demand.experts()[i], actions[i], demand.UsesOf(i), demand.PhaseOf(i));
    if (most_wanted_first_ && turn_.phase() == Phase::kPrefill) turn_.MostTokensWaitFirst();
    if (whole_layers_) WantRest(demand);
    guesses_.Cancel([now = turn_.number()](const Slot& guess) { return guess.due_at <= now; }, cancels);
    StartWaitingDemands(cancels);
    demands_reading_ = DemandsLeft();
    const int64_t now = clock_.NowNanos();
    guesses_.pace().OnLayer(now, demands_reading_, gap);
    timing_.OnLayer(index().Position(turn_.layer()), turn_.phase(), now, stalled_nanos_);
    HandOutReady(cancels);
    pace = Pace();
  }
  if (cancels.empty()) return pace;
  RunCancels(cancels);
  CountedLock lock(mutex_);
  return Pace();
}

void ExpertCache::Want(const WantedExpert& wanted, const Action& action, std::span<const SequenceUse> uses, Phase phase) {
  if (action.kind == ActionKind::kSkip) {
    residency_.CountSkip(turn_.layer(), wanted.expert);
    return statistics_.CountSkipped(turn_.layer(), uses);
  }
  const CachedKey key{turn_.layer(), wanted.expert, action.precision};
  Slot* slot = slots_.Find(key);
  const bool hit = slot != nullptr && slot->state == RecordState::kResident;
  CountWanted(key, hit ? LookupResult::kHit : slot != nullptr ? LookupResult::kInflight : LookupResult::kMiss, phase, uses);
  const int item = turn_.Add({.key = key, .sequence = uses.front().sequence, .tokens = wanted.tokens});
  if (slot != nullptr) {
    CountReuse(*slot);
    Join(*slot, item);
  } else {
    turn_.Wait(item);
  }
}

void ExpertCache::CountReuse(Slot& slot) {
  if (slot.key.precision != kReferencePrecision || slot.times_used == 2) return;
  if (++slot.times_used == 2) timing_.OnUsedAgain(true);
}

// Of no token: no use that the policy or a count hears of. What is on its way comes anyway.
void ExpertCache::WantRest(const DemandSet& demand) {
  for (int32_t expert = 0; expert < index().experts_per_layer(); ++expert) {
    const CachedKey key{turn_.layer(), expert, kReferencePrecision};
    if (demand.positions()[expert] >= 0 || slots_.Find(key) != nullptr) continue;
    turn_.Wait(turn_.Add({.key = key, .sequence = demand.sequences().front(), .tokens = 0}));
  }
}

void ExpertCache::CountWanted(const CachedKey& key, LookupResult result, Phase phase, std::span<const SequenceUse> uses) {
  const bool hit = result == LookupResult::kHit;
  statistics_.CountLookup(key, result, phase, uses);
  residency_.CountLookup(key, hit);
  for (const SequenceUse& use : uses)
    policy_->OnAccess(key, {use.sequence, use.probability, use.rank, use.phase, hit, use.tokens});
}

void ExpertCache::CountFirstUse(Slot& slot) {
  const bool loading = slot.state == RecordState::kLoading;
  if (slot.unused_guess) EndGuess(slot, loading ? PrefetchOutcome::kLate : PrefetchOutcome::kUsed);
  if (!slot.unused_fill) return;
  filler_.Forget(slot);
  policy_->OnInsert(slot.key, slot.bytes.size());
}

void ExpertCache::Join(Slot& slot, int item) {
  CountFirstUse(slot);
  filler_.Arrived(slot);
  if (slot.state == RecordState::kLoading) loader_.Promote(slot.tickets);
  turn_.Hold(item, slot);
}

GuessingPace ExpertCache::Pace() const {
  const Prices prices = timing_.prices(turn_.phase());
  const double a_read = prices.read_seconds.empty() ? 0 : prices.read_seconds[kReferencePrecision];
  return {.least_probability = guesses_.pace().LeastProbability(),
          .records_a_layer = a_read > 0 ? prices.layer_seconds / a_read : 0};
}

void ExpertCache::LayerRouted(const LayerRouting& routing, const DemandSet& demand, std::span<const Guess> guesses,
                              const PrefetchBudget& budget) {
  CountedLock lock(mutex_);
  policy_->OnRouted(routing);
  statistics_.CountGuesses(routing.layer, demand, guesses, budget.min_probability);
  if (budget.keep_guessed) KeepGuessed(guesses, FarthestLayer(residency_, guesses, budget));
  between_tokens_ = budget.between_tokens && turn_.phase() == Phase::kDecode && IsLast(turn_.layer());
  if (!guesses.empty() && !turn_.waiting()) guesses_.Plan(PlanPrefetch(residency_, guesses, budget), budget);
  StartGuesses();
}

void ExpertCache::GuessAgain(std::span<const Guess> guesses, const PrefetchBudget& budget) {
  const auto refuted = [&](const Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return slot.due_at == turn_.number() + 1 &&
           std::ranges::none_of(guesses, [&](const Guess& guess) { return guess.key == slot.key.expert_key(); });
  };
  Cancels cancels;
  {
    CountedLock lock(mutex_);
    statistics_.CountMoreGuesses(guesses, budget.min_probability);
    guesses_.Cancel(refuted, cancels);
    guesses_.ForgetPlanned();
    if (!turn_.waiting()) guesses_.Plan(PlanPrefetch(residency_, guesses, budget), budget);
    StartGuesses();
  }
  RunCancels(cancels);
}

std::optional<ReadyExpert> ExpertCache::Next(bool wait) {
  if (next_ == handed_out_.size()) {
    handed_out_.clear();
    next_ = 0;
    if (left_ == 0) EndLayer(/*done=*/wait);
    if (left_ == 0) return std::nullopt;
    Cancels cancels;
    {
      CountedLock lock(mutex_);
      const auto any_ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return turn_.any_ready(); };
      if (wait) SettleMovesThatDemandsAwait(cancels);
      if (wait) AwaitCounted(absl::Condition(&any_ready), -1);
      HandOutReady(cancels);
    }
    RunCancels(cancels);
    if (handed_out_.empty()) return std::nullopt;
  }
  return std::move(handed_out_[next_++]);
}

// All that are there: one crossing, however many they are.
void ExpertCache::HandOutReady(Cancels& cancels) {
  bool failed = false;
  while (turn_.any_ready()) {
    handed_out_.push_back(HandOut(turn_.TakeReady()));
    failed |= !handed_out_.back().status.ok();
  }
  left_ = turn_.left();
  if (failed) StartWaitingDemands(cancels);
}

// A record whose end failed after its beginning had arrived is a failed one.
ReadyExpert ExpertCache::HandOut(LayerTurn::Item& item) {
  ReadyExpert ready{.expert = item.key.expert, .precision = item.key.precision, .status = item.status};
  if (item.slot == nullptr) return ready;
  if (item.slot->state == RecordState::kFailed) {
    ready.status = item.slot->status;
    --item.slot->pins;
    ReleaseIfOver(*item.slot);
    return ready;
  }
  if (item.read_bytes > 0) statistics_.CountRead(item.sequence, item.read_bytes);
  if (device_ != nullptr && item.tokens > 0) PlaceForUse(item, ready);
  ++handles_;
  ready.handle = ExpertHandle(item.slot);
  return ready;
}

// Its pin is the layer's: no handle has been told where it lies. Nobody computes with one that is still being copied to the host.
void ExpertCache::PlaceForUse(const LayerTurn::Item& item, ReadyExpert& ready) {
  Slot& slot = *item.slot;
  const uint64_t bytes = slot.bytes.size();
  if (cooperation_ && !slot.on_device) {
    if (slot.ready == nullptr) {
      ready.on_processor = cooperation_->OnProcessor(bytes, item.tokens);
    } else {
      cooperation_->OnBrought(bytes);
    }
  }
  if (ready.on_processor) {
    slot.rises_later = true;
    return device_->CountUse(TierUse::kOnProcessor);
  }
  if (slot.state == RecordState::kResident) device_->Raise(slot, /*pins=*/1, turn_.layer());
  device_->CountUse(slot.on_device ? TierUse::kOnDevice : TierUse::kOverTheBus);
}

void ExpertCache::OnProcessorComputed(uint64_t bytes, int tokens, double seconds) {
  CountedLock lock(mutex_);
  if (cooperation_) cooperation_->OnComputed(bytes, tokens, seconds);
}

// `done`: its experts are computed.
void ExpertCache::EndLayer(bool done) {
  if (done && !experts_done_nanos_) experts_done_nanos_ = clock_.NowNanos();
  if (!idle_reads_left_) return;
  CountedLock lock(mutex_);
  StartIdleReads();
}

bool ExpertCache::Arrived(const Slot& slot, ExpertPart part) const {
  for (int read = 0; read < loader_.ReadsOf(slot.key); ++read) {
    if (loader_.Covers(slot.key, read, part)) return (slot.arrived >> read) & 1;
  }
  return false;
}

bool ExpertCache::HasPart(const Slot& slot, ExpertPart part) const {
  return Arrived(slot, part) || slot.state == RecordState::kFailed;
}

absl::StatusOr<PartBytes> ExpertCache::WaitPart(Slot& slot, ExpertPart part) {
  if (!Arrived(slot, part)) {
    CountedLock lock(mutex_);
    const auto settled = [&] { return HasPart(slot, part); };
    AwaitCounted(absl::Condition(&settled), slot.key.expert);
    if (!Arrived(slot, part)) return slot.status;
  }
  const ExpertSegment* segment = store_.expert_layout(slot.key).Find(part);
  MOED_CHECK(segment != nullptr);
  return PartBytes{.bytes = slot.bytes.subspan(segment->offset, segment->bytes),
                   .memory = slot.on_device ? MemoryKind::kDevice : MemoryKind::kHost,
                   .ready = slot.ready};
}

void ExpertCache::AwaitCounted(const absl::Condition& condition, int32_t expert) {
  if (condition.Eval()) return;
  const int64_t begin = clock_.NowNanos();
  mutex_.Await(condition);
  const int64_t end = clock_.NowNanos();
  stalled_nanos_ += end - begin;
  statistics_.CountWait(turn_, SecondsBetween(begin, end));
  if (trace_ != nullptr) trace_->Add({"wait", kComputeTrack, begin, end, turn_.layer().value(), expert});
}

// Pins are dropped without the lock where nobody waits for them. Who finds no room says so before it looks at pins, and this
// looks after it dropped its own: one of the two sees the other.
void ExpertCache::Unpin(Slot& slot) {
  const bool moves = slot.leaves_unpinned() || slot.rises_later;
  --handles_;
  if (--slot.pins > 0 || !(moves || pins_awaited_ || slot.state == RecordState::kFailed)) return;
  Cancels cancels;
  {
    CountedLock lock(mutex_);
    ReleaseIfOver(slot);
    StartWaitingDemands(cancels);
    StartGuesses();
    if (slot.rises_later && slot.pins == 0 && slot.state == RecordState::kResident) {
      slot.rises_later = false;
      device_->Raise(slot, /*pins=*/0, turn_.layer());
    }
  }
  RunCancels(cancels);
}

SequenceCounters ExpertCache::sequence_counters(SequenceId sequence) const {
  CountedLock lock(mutex_);
  return statistics_.counters(sequence);
}

ExpertStats ExpertCache::Stats() const {
  ExpertStats now;
  {
    CountedLock lock(mutex_);
    now = statistics_.stats();
    now.cache_bytes = room_.pool().touched_bytes();
    now.cache_capacity_bytes = room_.pool().capacity_bytes();
    now.asked = asked_.counts();
    now.anchors = {anchors_.count(), anchors_.bytes(), MostAnchored(now.cache_capacity_bytes)};
    if (device_ != nullptr) now.device = device_->stats();
    now.device.steps = steps_;
    now.read_busy_nanos = loader_.stats().busy_nanos;
    now.lock_crossings = mutex_.crossings();
  }
  for (size_t position = 0; position < now.layers.size(); ++position) {
    now.layers[position].resident = residency_.Residents(static_cast<int>(position));
  }
  return now;
}

void ExpertCache::VisitLearned(LearnedState& state, ExpertPredictor& predictor) {
  CountedLock lock(mutex_);
  policy_->VisitLearned(state);
  predictor.VisitLearned(state);
}

}  // namespace moed
