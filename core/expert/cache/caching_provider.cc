#include "core/expert/cache/caching_provider.h"

#include <algorithm>
#include <utility>

#include "core/base/byte_size.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "core/expert/cache/cache.h"
#include "core/expert/cache/demand.h"
#include "core/expert/cache/prefetch_plan.h"
#include "core/expert/fidelity/bound.h"
#include "core/store/layout.h"

namespace moed {
namespace {

class Provider final : public CachingProvider {
 public:
  Provider(ProviderParts parts, const ProviderOptions& options)
      : layers_(parts.store->description().moe_layers),
        experts_per_layer_(parts.store->description().experts_per_layer),
        budget_{options.max_prefetch_loads, options.min_prefetch_probability},
        predictor_(std::move(parts.predictor)),
        precisions_(static_cast<int>(parts.store->description().precisions.size())),
        take_what_is_free_(options.take_what_is_free),
        rule_(std::move(parts.fidelity)),
        mask_(parts.mask == nullptr ? std::nullopt : std::optional<BoundedMask>(std::in_place, std::move(parts.mask))),
        recorder_(parts.recorder),
        demand_(parts.store->description().experts_per_layer),
        cache_({*parts.store, *parts.reads, *parts.clock, *parts.allocator, parts.device, parts.trace, options.most_wanted_first,
                options.whole_layers, std::move(parts.fill), parts.known, parts.encoder_positions},
               std::move(parts.policy),
               {options.capacity_bytes, std::max(options.most_bytes, options.capacity_bytes), options.least_bytes},
               {options.queue, options.split_read_bytes, options.checksums}) {}

  absl::Status Open() { return cache_.Open(); }

  void OnSequenceStart(SequenceId sequence) override {
    cache_.StartSequence(sequence);
    predictor_->OnSequenceStart(sequence);
  }
  void OnSequenceEnd(SequenceId sequence) override {
    cache_.EndSequence(sequence);
    predictor_->OnSequenceEnd(sequence);
    if (recorder_ != nullptr) recorder_->OnSequenceEnd(sequence);
  }
  void OnSequencePause(SequenceId sequence) override {
    cache_.PauseSequence(sequence);
    if (recorder_ != nullptr) recorder_->OnSequenceEnd(sequence);
  }
  void OnToken(SequenceId sequence, TokenId token) override {
    cache_.OnToken(sequence, token);
    predictor_->OnToken(sequence, token);
  }
  void OnGateInput(SequenceId sequence, LayerId layer, std::span<const float> hidden) override {
    predictor_->OnGateInput(sequence, layer, hidden);
  }
  void OnTokenGateInput(SequenceId sequence, LayerId layer, std::span<const float> hidden) override {
    predictor_->OnTokenGateInput(sequence, layer, hidden);
  }
  bool WantsPreview() override {
    return predictor_->wants_previews() && demand_.phase() == Phase::kDecode && MayGuess(guessing_);
  }
  void OnGatePreview(SequenceId sequence, LayerId next, std::span<const float> hidden) override {
    predictor_->OnGatePreview(sequence, next, hidden);
  }
  void OnPreviewed() override {
    merged_.clear();
    Guesses(routed_);
    cache_.GuessAgain(merged_, guessing_);
  }
  bool masks_router() const override { return mask_.has_value(); }
  void MaskRouter(LayerId layer, std::span<const float> hidden, std::span<float> logits, TokenRouting& token) override {
    if (!mask_) return;
    mask_->Observe(layer, token, hidden, logits);
    if (!token.fidelity.exact()) mask_->Apply(layer, cache_.residency(), logits, token);
  }

  ActivationLender* lender() override { return this; }
  absl::StatusOr<std::span<std::byte>> Lend(uint64_t bytes) override { return cache_.Lend(bytes); }

  absl::Status Resize(uint64_t capacity_bytes) override { return cache_.Resize(capacity_bytes); }
  absl::Status Pin(std::span<const CachedKey> keys) override { return cache_.Anchor(keys); }
  void Unpin(std::span<const CachedKey> keys) override { cache_.Unanchor(keys); }
  void UnpinAll() override { cache_.UnanchorAll(); }
  std::vector<CachedKey> Pinned() const override { return cache_.Anchored(); }
  size_t Prefetch(std::span<const CachedKey> keys) override { return cache_.Ask(keys); }

  void Begin(const LayerRouting& routing) override {
    demand_.Collect(routing);
    actions_.assign(demand_.experts().size(), kExactly);
    lost_.assign(routing.tokens.size(), 0);
    const auto resolve = [&](const ResidencyView& residents, const TimingMeter& timing) {
      if (!demand_.fidelity().exact()) Resolve(routing, residents, timing);
    };
    const GuessingPace pace = cache_.BeginLayer(routing, demand_, resolve, actions_, lost_);
    // Only now, while the demands are being read, and without the cache's lock, which their ends need: learning and predicting
    // cost time.
    cache_.Learn(routing);
    predictor_->OnRouted(routing);
    if (recorder_ != nullptr) recorder_->OnRouted(routing);
    routed_ = routing.layer;
    guessing_ = Predict(routing.layer, pace);
    cache_.LayerRouted(routing, demand_, merged_, guessing_);
  }
  ExpertTable WhereAllLie() override { return cache_.WhereAllLie(); }
  void OnStep(StepWay way) override { cache_.OnStep(way); }
  // Nothing is guessed: all that could be read is there.
  void OnComputed(const LayerRouting& routing) override {
    demand_.Collect(routing);
    lost_.assign(routing.tokens.size(), 0);
    cache_.OnComputed(routing, demand_, lost_);
    cache_.Learn(routing);
    predictor_->OnRouted(routing);
    if (recorder_ != nullptr) recorder_->OnRouted(routing);
    cache_.LayerRouted(routing, demand_, {}, {});
  }
  std::optional<ReadyExpert> Next() override { return NextChosen(/*wait=*/true); }
  std::optional<ReadyExpert> NextReady() override { return NextChosen(/*wait=*/false); }

  void OnProcessorComputed(uint64_t bytes, int tokens, double seconds) override {
    cache_.OnProcessorComputed(bytes, tokens, seconds);
  }

  SequenceCounters sequence_counters(SequenceId sequence) const override { return cache_.sequence_counters(sequence); }
  ExpertStats Stats() const override { return cache_.Stats(); }
  uint64_t table_bytes() const override { return cache_.table_bytes(); }
  std::vector<ExpertHeat> HottestExperts(int top) const override { return cache_.residency().Hottest(top); }
  std::vector<ExpertHeat> ResidentRecords() const override { return cache_.residency().ResidentRecords(); }
  ExpertMap ChangedExperts(uint64_t since) const override { return cache_.residency().ChangedSince(since); }
  void VisitLearned(LearnedState& state) override { cache_.VisitLearned(state, *predictor_); }

 private:
  // What nobody chose is let go at once: the read that comes next may need its place.
  std::optional<ReadyExpert> NextChosen(bool wait) {
    for (;;) {
      std::optional<ReadyExpert> ready = cache_.Next(wait);
      if (!ready || demand_.positions()[ready->expert] >= 0) return ready;
    }
  }

  void Resolve(const LayerRouting& routing, const ResidencyView& residents, const TimingMeter& timing) {
    const Phase phase = demand_.phase();
    const Prices prices = timing.prices(phase);
    const LayerDemand demand{routing, demand_.experts(), demand_.positions(), phase, residents, prices};
    rule_->Resolve(demand, actions_);
    HoldBounds(demand, precisions_, actions_, lost_, take_what_is_free_);
  }

  // Fills merged_, as far as guesses may be read at all.
  PrefetchBudget Predict(LayerId from, const GuessingPace& pace) {
    merged_.clear();
    if (predictor_->paced() && WantsWholeLayers()) {
      GuessWholeLayerAfter(from);
      return {.max_loads = experts_per_layer_};
    }
    const PrefetchBudget budget = Budget(pace);
    if (MayGuess(budget)) Guesses(from);
    return budget;
  }
  static bool MayGuess(const PrefetchBudget& budget) { return budget.max_loads > 0 && budget.min_probability <= 1; }

  PrefetchBudget Budget(const GuessingPace& pace) const {
    if (predictor_->paced()) {
      const float least = std::max(budget_.min_probability, pace.least_probability);
      return {.max_loads = budget_.max_loads, .min_probability = least, .give_way = true, .between_tokens = true};
    }
    return predictor_->Budget({demand_.phase(), pace.records_a_layer}).value_or(budget_);
  }

  // So many tokens of a prompt that they want nearly all of a layer will want as much of the next one, which needs no prediction.
  bool WantsWholeLayers() const {
    return demand_.phase() == Phase::kPrefill && 8 * static_cast<int>(demand_.experts().size()) >= 7 * experts_per_layer_;
  }
  void GuessWholeLayerAfter(LayerId layer) {
    const auto next = std::upper_bound(layers_.begin(), layers_.end(), layer);
    if (next == layers_.end()) return;
    for (int32_t expert = 0; expert < experts_per_layer_; ++expert) merged_.push_back({{*next, expert}, 1.0f, 1});
    Fidelity fidelity = Fidelity::Fast();
    for (size_t i = 0; i < demand_.sequences().size(); ++i) fidelity = std::min(fidelity, demand_.FidelityOf(i));
    SetPrecisions(merged_, fidelity);
  }

  // What is read for an exact sequence is of no use to it at a lower precision.
  void SetPrecisions(std::span<Guess> guesses, Fidelity fidelity) const {
    for (Guess& guess : guesses) {
      guess.precision = fidelity.exact() ? kReferencePrecision : rule_->PrefetchPrecision(guess.key, guess.precision);
    }
  }

  // To merged_: the best guess of every sequence, then the second best, ...; true probabilities of several by likelihood.
  void Guesses(LayerId from) {
    guesses_.clear();
    first_guess_.clear();
    for (size_t i = 0; i < demand_.sequences().size(); ++i) {
      first_guess_.push_back(guesses_.size());
      predictor_->Predict(demand_.sequences()[i], from, guesses_);
      SetPrecisions(std::span(guesses_).subspan(first_guess_.back()), demand_.FidelityOf(i));
    }
    first_guess_.push_back(guesses_.size());
    for (size_t rank = 0; merged_.size() < guesses_.size(); ++rank) {
      for (size_t sequence = 0; sequence + 1 < first_guess_.size(); ++sequence) {
        const size_t i = first_guess_[sequence] + rank;
        if (i < first_guess_[sequence + 1]) merged_.push_back(guesses_[i]);
      }
    }
    if (predictor_->paced() && demand_.sequences().size() > 1) OrderByLikelihood(merged_);
  }

  const std::vector<LayerId> layers_;  // MoE layers, ascending
  const int experts_per_layer_;
  const PrefetchBudget budget_;
  const std::unique_ptr<ExpertPredictor> predictor_;
  const int precisions_;
  const bool take_what_is_free_;
  const std::unique_ptr<FidelityRule> rule_;

  std::optional<BoundedMask> mask_;
  RoutingRecorder* const recorder_;  // may be null

  // Of the current layer; kept so that a step allocates nothing.
  DemandSet demand_;
  std::vector<Action> actions_;
  std::vector<float> lost_;          // [token of the step]
  std::vector<Guess> guesses_;       // sequence by sequence
  std::vector<size_t> first_guess_;  // one more than sequences
  std::vector<Guess> merged_;
  LayerId routed_;
  PrefetchBudget guessing_;  // of the current layer

  ExpertCache cache_;  // last: its reads end first
};

}  // namespace

absl::StatusOr<std::unique_ptr<CachingProvider>> CachingProvider::Create(ProviderParts parts, const ProviderOptions& options) {
  MOED_CHECK(parts.store != nullptr && parts.reads != nullptr && parts.policy != nullptr && parts.predictor != nullptr &&
             parts.fidelity != nullptr && parts.clock != nullptr && parts.allocator != nullptr);
  const uint64_t largest = LargestRecordBytes(parts.store->description());
  if (options.capacity_bytes < largest) {
    return InvalidArgument("expert cache of ", options.capacity_bytes, " bytes: one expert of ", parts.store->path(), " needs ",
                           largest, " bytes (", FormatBytes(largest), ")");
  }
  if (parts.device.allocator != nullptr && parts.device.capacity_bytes < 2 * largest) {
    return InvalidArgument("expert slots of ", parts.device.capacity_bytes, " bytes on the device: two experts of ",
                           parts.store->path(), " need ", 2 * largest, " bytes (", FormatBytes(2 * largest), ")");
  }
  if (options.queue.max_in_flight < 0) {
    return InvalidArgument("max_in_flight ", options.queue.max_in_flight, ": allowed are 0 (the backend's own limit) and more");
  }
  if (options.queue.idle_piece_bytes == 0 || options.queue.idle_piece_bytes % kPageBytes != 0) {
    return InvalidArgument("idle_piece_bytes ", options.queue.idle_piece_bytes, ": allowed are multiples of ", kPageBytes);
  }
  if (options.max_prefetch_loads < 0) {
    return InvalidArgument("max_prefetch_loads ", options.max_prefetch_loads, ": allowed are 0 and more");
  }
  if (!(options.min_prefetch_probability >= 0 && options.min_prefetch_probability <= 1)) {
    return InvalidArgument("min_prefetch_probability ", options.min_prefetch_probability, ": allowed are 0 to 1");
  }
  auto provider = std::make_unique<Provider>(std::move(parts), options);
  MOED_RETURN_IF_ERROR(provider->Open());
  return provider;
}

uint64_t CachingProvider::CacheTableBytes(const StoreDescription& store) { return ExpertCache::TableBytes(store); }

}  // namespace moed
