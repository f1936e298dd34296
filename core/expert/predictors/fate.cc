// Fate (arXiv 2502.12224), section 4.3. Decode: the next layer's experts above the 75th percentile (section 4.2), at most
// n = T / t_expert of them, T being what a layer's attention, gate and experts take to compute and t_expert one expert's read;
// the paper measures both offline, here they are measured while serving; n is rounded to the nearest whole (ours). Prompt: every
// token's next experts are predicted and read in order of popularity, the number of tokens that chose them; the least popular
// share p at the lowest precision (section 4.5).
//
// Of a long prompt, evenly spread tokens stand for all (ours).
#include "core/expert/predictors/fate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "core/expert/fidelity/fate_plan.h"
#include "core/expert/predictors/gate_guesses.h"
#include "core/expert/top_experts.h"

namespace moed {
namespace {

constexpr size_t kSampledTokens = 32;
constexpr double kMostLoads = 1 << 20;  // more than any layer has

// Gate inputs of one layer of a step: those of every stride-th token, the stride doubling when there are too many.
class Sample {
 public:
  void Begin(LayerId layer, uint64_t step) {
    layer_ = layer;
    step_ = step;
    tokens_ = 0;
    stride_ = 1;
    inputs_.clear();
  }
  void Add(std::span<const float> hidden) {
    last_.assign(hidden.begin(), hidden.end());
    if (tokens_++ % stride_ != 0) return;
    if (inputs_.size() == kSampledTokens * hidden.size()) {
      Thin(hidden.size());
      if ((tokens_ - 1) % stride_ != 0) return;
    }
    inputs_.insert(inputs_.end(), hidden.begin(), hidden.end());
  }

  std::optional<LayerId> layer() const { return layer_; }
  uint64_t step() const { return step_; }
  size_t tokens() const { return tokens_; }
  std::span<const float> last() const { return last_; }
  std::span<const float> inputs() const { return inputs_; }

 private:
  void Thin(size_t hidden) {
    stride_ *= 2;
    for (size_t kept = 0; kept < kSampledTokens / 2; ++kept) {
      std::copy_n(inputs_.begin() + static_cast<std::ptrdiff_t>(2 * kept * hidden), hidden,
                  inputs_.begin() + static_cast<std::ptrdiff_t>(kept * hidden));
    }
    inputs_.resize(kSampledTokens / 2 * hidden);
  }

  std::optional<LayerId> layer_;
  uint64_t step_ = 0;
  size_t tokens_ = 0;
  size_t stride_ = 1;
  std::vector<float> last_;    // (hidden)
  std::vector<float> inputs_;  // (sampled tokens, hidden)
};

constexpr size_t kExpertBytes = 3 * sizeof(float) + sizeof(int32_t);  // of scratch
size_t SequenceBytes(size_t hidden) { return sizeof(Sample) + (kSampledTokens + 1) * hidden * sizeof(float); }

class FatePredictor final : public ExpertPredictor {
 public:
  FatePredictor(const PartContext& context, float unpopular_share)
      : layers_(context.model.moe_layers.begin(), context.model.moe_layers.end()),
        top_k_(static_cast<size_t>(std::min(context.model.top_k, context.model.experts_per_layer))),
        hidden_(static_cast<size_t>(context.hidden)),
        low_(static_cast<Precision>(context.model.precisions - 1)),
        unpopular_share_(unpopular_share),
        gate_(context.gate),
        probabilities_(static_cast<size_t>(context.model.experts_per_layer)),
        ordered_(probabilities_.size()),
        order_(probabilities_.size()),
        popularity_(probabilities_.size()) {
    MOED_CHECK(gate_ != nullptr && context.hidden > 0 && top_k_ > 0);
  }

  std::optional<PrefetchBudget> Budget(const ReadingPace& pace) const override {
    if (pace.phase == Phase::kPrefill) return PrefetchBudget{.max_loads = INT_MAX};
    return PrefetchBudget{.max_loads = static_cast<int>(std::lround(std::min(pace.records_a_layer, kMostLoads)))};
  }

  void OnSequenceStart(SequenceId sequence) override { sequences_[sequence]; }
  void OnSequenceEnd(SequenceId sequence) override { sequences_.erase(sequence); }
  void OnTokenGateInput(SequenceId id, LayerId layer, std::span<const float> hidden) override {
    const auto sequence = sequences_.find(id);
    MOED_CHECK(sequence != sequences_.end() && hidden.size() == hidden_);
    Sample& sample = sequence->second;
    if (sample.layer() != layer || sample.step() != layers_routed_) sample.Begin(layer, layers_routed_);
    sample.Add(hidden);
  }
  void OnRouted(const LayerRouting&) override { ++layers_routed_; }

  void Predict(SequenceId id, LayerId from, std::vector<Guess>& best_first) override {
    const auto sequence = sequences_.find(id);
    const auto next = std::upper_bound(layers_.begin(), layers_.end(), from);
    if (sequence == sequences_.end() || sequence->second.layer() != from || next == layers_.end()) return;
    const size_t first = best_first.size();
    if (sequence->second.tokens() == 1) {
      GuessAnswer(*next, sequence->second, best_first);
      SortBestFirst(std::span(best_first).subspan(first));
    } else {
      GuessPrompt(*next, sequence->second, best_first);
      SortBestFirst(std::span(best_first).subspan(first));
      const size_t guesses = best_first.size() - first;
      const auto lowered = static_cast<size_t>(unpopular_share_ * static_cast<float>(guesses));
      for (Guess& guess : std::span(best_first).last(lowered)) guess.precision = low_;
    }
  }

  size_t memory_bytes() const override {
    return sequences_.size() * SequenceBytes(hidden_) + probabilities_.size() * kExpertBytes;
  }

 private:
  void GuessAnswer(LayerId next, const Sample& sample, std::vector<Guess>& guesses) {
    gate_(next, sample.last(), probabilities_);
    std::ranges::copy(probabilities_, ordered_.begin());
    const float threshold = UpperQuartile(ordered_);
    for (size_t expert = 0; expert < probabilities_.size(); ++expert) {
      if (probabilities_[expert] > threshold)
        guesses.push_back({{next, static_cast<int32_t>(expert)}, probabilities_[expert], 1});
    }
  }

  // A guess's probability is the share of the tokens that chose it.
  void GuessPrompt(LayerId next, const Sample& sample, std::vector<Guess>& guesses) {
    std::ranges::fill(popularity_, 0.f);
    const size_t tokens = sample.inputs().size() / hidden_;
    for (size_t token = 0; token < tokens; ++token) {
      gate_(next, sample.inputs().subspan(token * hidden_, hidden_), probabilities_);
      for (const int32_t expert : TopExperts(probabilities_, top_k_, order_)) popularity_[static_cast<size_t>(expert)] += 1;
    }
    for (size_t expert = 0; expert < popularity_.size(); ++expert) {
      if (popularity_[expert] == 0) continue;
      guesses.push_back({{next, static_cast<int32_t>(expert)}, popularity_[expert] / static_cast<float>(tokens), 1});
    }
  }

  const std::vector<LayerId> layers_;
  const size_t top_k_;
  const size_t hidden_;
  const Precision low_;
  const float unpopular_share_;
  const GateFn gate_;
  absl::flat_hash_map<SequenceId, Sample> sequences_;
  uint64_t layers_routed_ = 0;
  // Scratch. (experts)
  std::vector<float> probabilities_, ordered_;
  std::vector<int32_t> order_;
  std::vector<float> popularity_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ExpertPredictor>> MakeFatePredictor(const PartContext& context, const PartOptions& options) {
  double unpopular_share = 0;
  if (options.Has(kFatePrefillLow)) {
    MOED_ASSIGN_OR_RETURN(unpopular_share, FatePrefillLow(options));
  }
  return std::make_unique<FatePredictor>(context, static_cast<float>(unpopular_share));
}

PartMemory FatePredictorMemory(const PartContext& context, const PartOptions&) {
  return {.fixed_bytes = static_cast<size_t>(context.model.experts_per_layer) * kExpertBytes,
          .sequence_bytes = SequenceBytes(static_cast<size_t>(context.hidden))};
}

}  // namespace moed
