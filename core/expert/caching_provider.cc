#include "core/expert/caching_provider.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/expert/cache.h"
#include "core/expert/memory_plan.h"
#include "core/expert/wanted.h"

namespace moed {
namespace {

// Guesses that are read at once where they are paced: a demand that comes waits behind one.
constexpr int kPacedLoads = 1;

class Provider final : public CachingProvider {
 public:
  Provider(ProviderParts parts, const ProviderOptions& options)
      : layers_(parts.store->description().moe_layers),
        experts_per_layer_(parts.store->description().experts_per_layer),
        budget_{options.max_prefetch_loads, options.min_prefetch_probability},
        predictor_(std::move(parts.predictor)),
        mask_(std::move(parts.mask)),
        rule_(std::move(parts.fidelity)),
        wanted_(parts.store->description().experts_per_layer),
        cache_({*parts.store, *parts.reads, *parts.clock, *parts.allocator, parts.trace}, std::move(parts.policy),
               options.capacity_bytes, {options.max_reads_in_flight, options.split_read_bytes, options.checksums}) {}

  void OnSequenceStart(SessionId session) override {
    cache_.StartSequence(session);
    predictor_->OnSequenceStart(session);
  }
  void OnSequenceEnd(SessionId session) override {
    cache_.EndSequence(session);
    predictor_->OnSequenceEnd(session);
  }
  void OnToken(SessionId session, TokenId token) override {
    cache_.OnToken(session, token);
    predictor_->OnToken(session, token);
  }
  void OnGateInput(SessionId session, LayerId layer, std::span<const float> hidden) override {
    predictor_->OnGateInput(session, layer, hidden);
  }
  void MaskRouter(LayerId layer, std::span<float> logits) override {
    cache_.Inspect([&](const ResidencyView& residents) { mask_->Apply(layer, residents, logits); });
  }

  void Begin(const LayerRouting& routing) override {
    wanted_.Collect(routing);
    actions_.assign(wanted_.experts().size(), Action{});
    cache_.Inspect(
        [&](const ResidencyView& residents) { rule_->Resolve(routing.layer, wanted_.experts(), residents, actions_); });
    cache_.BeginLayer(routing.layer, wanted_, actions_);
    // Only now, while the demands are being read: predicting costs time.
    cache_.OnRouted(routing);
    predictor_->OnRouted(routing);
    PrefetchBudget budget = budget_;
    if (predictor_->paced() && WantsWholeLayers()) {
      GuessWholeLayerAfter(routing.layer);
      cache_.Prefetch(merged_, {.max_loads = experts_per_layer_, .max_loading = kPacedLoads, .when_idle = true});
      return;
    }
    if (predictor_->paced()) {
      budget = {budget_.max_loads, std::max(budget_.min_probability, cache_.LeastGuess()), kPacedLoads, /*when_idle=*/true};
    }
    if (budget.min_probability > 1) return;
    Guesses(routing.layer);
    if (!merged_.empty()) cache_.Prefetch(merged_, budget);
  }
  std::optional<ReadyExpert> Next() override { return cache_.Next(/*wait=*/true); }
  std::optional<ReadyExpert> NextReady() override { return cache_.Next(/*wait=*/false); }

  SequenceCounters sequence_counters(SessionId session) const override { return cache_.sequence_counters(session); }
  ExpertStats Stats() const override { return cache_.Stats(); }
  std::vector<ExpertHeat> HottestExperts(int top) const override { return cache_.Hottest(top); }

 private:
  // So many tokens of a prompt that they want nearly all of a layer will want as much of the next one, which needs no prediction.
  bool WantsWholeLayers() const {
    return wanted_.phase() == Phase::kPrefill && 8 * static_cast<int>(wanted_.experts().size()) >= 7 * experts_per_layer_;
  }
  void GuessWholeLayerAfter(LayerId layer) {
    merged_.clear();
    const auto next = std::upper_bound(layers_.begin(), layers_.end(), layer);
    if (next == layers_.end()) return;
    for (int32_t expert = 0; expert < experts_per_layer_; ++expert) merged_.push_back({{*next, expert}, 1.0f, 1});
  }

  // To merged_: the best guess of every sequence, then the second best, ...
  void Guesses(LayerId from) {
    guesses_.clear();
    first_guess_.clear();
    for (const SessionId session : wanted_.sessions()) {
      first_guess_.push_back(guesses_.size());
      predictor_->Predict(session, from, guesses_);
    }
    first_guess_.push_back(guesses_.size());
    merged_.clear();
    for (size_t rank = 0; merged_.size() < guesses_.size(); ++rank) {
      for (size_t sequence = 0; sequence + 1 < first_guess_.size(); ++sequence) {
        const size_t i = first_guess_[sequence] + rank;
        if (i < first_guess_[sequence + 1]) merged_.push_back(guesses_[i]);
      }
    }
  }

  const std::vector<LayerId> layers_;  // MoE layers, ascending
  const int experts_per_layer_;
  const PrefetchBudget budget_;
  const std::unique_ptr<ExpertPredictor> predictor_;
  const std::unique_ptr<RouterMask> mask_;
  const std::unique_ptr<FidelityRule> rule_;

  // Of the current layer; kept so that a step allocates nothing.
  WantedSet wanted_;
  std::vector<Action> actions_;
  std::vector<Guess> guesses_;       // sequence by sequence
  std::vector<size_t> first_guess_;  // one more than sequences
  std::vector<Guess> merged_;

  ExpertCache cache_;  // last: its reads end first
};

}  // namespace

absl::StatusOr<std::unique_ptr<CachingProvider>> CachingProvider::Create(ProviderParts parts, const ProviderOptions& options) {
  MOED_CHECK(parts.store != nullptr && parts.reads != nullptr && parts.policy != nullptr && parts.predictor != nullptr &&
             parts.mask != nullptr && parts.fidelity != nullptr && parts.clock != nullptr && parts.allocator != nullptr);
  uint64_t largest = 0;
  for (const ExpertLayout& layout : parts.store->description().precisions) largest = std::max(largest, layout.record_bytes);
  if (options.capacity_bytes < largest) {
    return InvalidArgument("expert cache of ", options.capacity_bytes, " bytes: one expert of ", parts.store->path(), " needs ",
                           largest, " bytes (", FormatBytes(largest), ")");
  }
  if (options.max_reads_in_flight < 0) {
    return InvalidArgument("max_reads_in_flight ", options.max_reads_in_flight,
                           ": allowed are 0 (the backend's own limit) and more");
  }
  if (options.max_prefetch_loads < 0) {
    return InvalidArgument("max_prefetch_loads ", options.max_prefetch_loads, ": allowed are 0 and more");
  }
  if (!(options.min_prefetch_probability >= 0 && options.min_prefetch_probability <= 1)) {
    return InvalidArgument("min_prefetch_probability ", options.min_prefetch_probability, ": allowed are 0 to 1");
  }
  return std::make_unique<Provider>(std::move(parts), options);
}

uint64_t CachingProvider::CacheTableBytes(const StoreDescription& store) { return ExpertCache::TableBytes(store); }

}  // namespace moed
