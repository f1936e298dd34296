#include "core/expert/predictor_learned.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/check.h"
#include "core/expert/expert_index.h"
#include "core/expert/next_use_table.h"

namespace moed {
namespace {

constexpr float kLearningRate = 0.1f;    // of the gradient's mean over a layer's experts
constexpr float kFrequencyRate = 0.02f;  // a token
constexpr float kLeastGate = 1e-4f;      // gate probabilities below are alike
constexpr float kLeastProbability = 0.05f;
constexpr size_t kPrefillTokens = 16;  // learned from in one prefill step, its last ones
constexpr size_t kTableRows = 8192;

enum Feature { kBias, kGateMargin, kGateChooses, kAfterToken, kFrequency, kFeatures };
using Weights = std::array<float, kFeatures>;
// One set for each degree of acquaintance with the token: never seen, a few times, often.
constexpr int kSets = 3;
constexpr std::array<Weights, kSets> kFirstWeights = {
    {{0.f, 0.9f, 1.4f, 0, 0.7f}, {0, 0.9f, 1.4f, 0.6f, 0.2f}, {0, 0.9f, 1.4f, 0.8f, 0}}};
constexpr int kOften = 4;  // occurrences

float LogOdds(float p) {
  p = std::clamp(p, 0.002f, 0.998f);
  return std::log(p / (1 - p));
}

class LearnedPredictor final : public ExpertPredictor {
 public:
  explicit LearnedPredictor(const PredictorContext& context)
      : index_(context.model.moe_layers, context.model.experts_per_layer, 1),
        experts_(static_cast<size_t>(context.model.experts_per_layer)),
        top_k_(static_cast<size_t>(std::min(context.model.top_k, context.model.experts_per_layer))),
        hidden_(static_cast<size_t>(context.hidden)),
        gate_(context.gate),
        frequency_(index_.size(), static_cast<float>(top_k_) / static_cast<float>(experts_)),
        of_token_(index_.size(), context.model.table_bytes, kTableRows),
        used_(experts_),
        gates_(experts_),
        ordered_(experts_) {
    MOED_CHECK(gate_ != nullptr && hidden_ > 0 && top_k_ > 0);
  }

  bool paced() const override { return true; }

  void OnSequenceStart(SessionId session) override {
    Sequence& sequence = sequences_[session];
    sequence.hidden.resize(hidden_);
    sequence.features.resize(kFeatures * experts_);
    sequence.probabilities.resize(experts_);
  }
  void OnSequenceEnd(SessionId session) override { sequences_.erase(session); }
  void OnGateInput(SessionId session, LayerId layer, std::span<const float> hidden) override {
    Sequence& sequence = Find(session);
    MOED_CHECK(hidden.size() == hidden_);
    sequence.layer = layer;
    std::ranges::copy(hidden, sequence.hidden.begin());
  }

  void OnRouted(const LayerRouting& routing) override {
    const int position = index_.Position(routing.layer);
    const std::span<const TokenRouting> tokens = routing.tokens;
    const size_t prefill = static_cast<size_t>(std::ranges::count(tokens, Phase::kPrefill, &TokenRouting::phase));
    size_t skipped = 0;
    for (const TokenRouting& token : tokens) {
      const bool skip = token.phase == Phase::kPrefill && skipped + kPrefillTokens < prefill;
      skipped += skip;
      if (!skip) Learn(position, token);
    }
  }

  void Predict(SessionId session, LayerId from, std::vector<Guess>& best_first) override {
    Sequence& sequence = Find(session);
    const int next = index_.Position(from) + 1;
    if (!sequence.decodes || sequence.layer != from || next == index_.layers()) return;
    gate_(index_.Layer(next), sequence.hidden, gates_);
    FillFeatures(next, sequence);
    Score(sequence);
    sequence.guessed = next;
    const size_t first = best_first.size();
    for (size_t e = 0; e < experts_; ++e) {
      const float p = sequence.probabilities[e];
      if (p >= kLeastProbability) best_first.push_back({{index_.Layer(next), static_cast<int32_t>(e)}, p, 1});
    }
    std::sort(best_first.begin() + static_cast<std::ptrdiff_t>(first), best_first.end(), [](const Guess& a, const Guess& b) {
      return a.probability != b.probability ? a.probability > b.probability : a.key.expert < b.key.expert;
    });
  }

  size_t memory_bytes() const override {
    const size_t a_sequence = sizeof(Sequence) + (hidden_ + (kFeatures + 1) * experts_) * sizeof(float);
    return sequences_.size() * a_sequence + frequency_.size() * sizeof(float) + 3 * experts_ * sizeof(float) +
           of_token_.memory_bytes();
  }

 private:
  static constexpr int kNothing = -1;

  struct Sequence {
    std::optional<LayerId> layer;  // where `hidden` was seen
    std::vector<float> hidden;
    TokenId token{-1};  // that was routed last
    bool decodes = false;
    int guessed = kNothing;  // layer position that the rest is about
    int set = 0;
    std::vector<float> features;       // (kFeatures, experts)
    std::vector<float> probabilities;  // (experts)
  };

  Sequence& Find(SessionId session) {
    const auto found = sequences_.find(session);
    MOED_CHECK(found != sequences_.end());
    return found->second;
  }
  size_t At(int position) const { return static_cast<size_t>(position) * experts_; }

  void Learn(int position, const TokenRouting& token) {
    std::ranges::fill(used_, 0.f);
    for (const ExpertChoice& choice : token.choices) used_[static_cast<size_t>(choice.expert)] = 1;
    Sequence& sequence = Find(token.session);
    sequence.token = token.token;
    sequence.decodes = token.phase == Phase::kDecode;
    if (sequence.guessed == position) LearnWeights(sequence);
    sequence.guessed = kNothing;
    const std::span<float> frequency = std::span(frequency_).subspan(At(position), experts_);
    const int row = position == 0 ? of_token_.FindOrAdd(token.token) : of_token_.Find(token.token);
    if (row != TokenTable::kNoRow) {
      of_token_.Learn(row, At(position), used_, frequency);
      if (position + 1 == index_.layers()) of_token_.CountOccurrence(row);
    }
    for (size_t e = 0; e < experts_; ++e) frequency[e] += (used_[e] - frequency[e]) * kFrequencyRate;
  }

  void LearnWeights(const Sequence& sequence) {
    Weights& weights = weights_[static_cast<size_t>(sequence.set)];
    for (size_t f = 0; f < kFeatures; ++f) {
      const float* row = &sequence.features[f * experts_];
      float gradient = 0;
      for (size_t e = 0; e < experts_; ++e) gradient += (used_[e] - sequence.probabilities[e]) * row[e];
      weights[f] += gradient * kLearningRate / static_cast<float>(experts_);
    }
  }

  void FillFeatures(int position, Sequence& sequence) {
    std::ranges::copy(gates_, ordered_.begin());
    const auto last_chosen = ordered_.begin() + static_cast<std::ptrdiff_t>(top_k_ - 1);
    std::nth_element(ordered_.begin(), last_chosen, ordered_.end(), std::greater<>());
    const float threshold = *last_chosen;
    const int row = of_token_.Find(sequence.token);
    const int occurrences = row == TokenTable::kNoRow ? 0 : of_token_.occurrences(row);
    sequence.set = occurrences == 0 ? 0 : occurrences < kOften ? 1 : 2;
    float* features = sequence.features.data();
    for (size_t e = 0; e < experts_; ++e) {
      features[kBias * experts_ + e] = 1;
      features[kGateMargin * experts_ + e] = std::log((gates_[e] + kLeastGate) / (threshold + kLeastGate));
      features[kGateChooses * experts_ + e] = gates_[e] >= threshold ? 1 : 0;
      features[kAfterToken * experts_ + e] = 0;
      features[kFrequency * experts_ + e] = LogOdds(frequency_[At(position) + e]);
    }
    if (occurrences == 0) return;
    const std::span<const uint8_t> values = of_token_.Values(row, At(position), experts_);
    for (size_t e = 0; e < experts_; ++e) features[kAfterToken * experts_ + e] = LogOdds(static_cast<float>(values[e]) / 255);
  }

  void Score(Sequence& sequence) const {
    const Weights& weights = weights_[static_cast<size_t>(sequence.set)];
    std::ranges::fill(sequence.probabilities, 0.f);
    for (size_t f = 0; f < kFeatures; ++f) {
      const float* row = &sequence.features[f * experts_];
      for (size_t e = 0; e < experts_; ++e) sequence.probabilities[e] += weights[f] * row[e];
    }
    for (float& p : sequence.probabilities) p = 1 / (1 + std::exp(-p));
  }

  const ExpertIndex index_;
  const size_t experts_;
  const size_t top_k_;
  const size_t hidden_;
  const GateFn gate_;
  std::array<Weights, kSets> weights_ = kFirstWeights;
  std::vector<float> frequency_;  // (layers, experts)
  TokenTable of_token_;
  absl::flat_hash_map<SessionId, Sequence> sequences_;

  // Scratch. (experts)
  std::vector<float> used_, gates_, ordered_;
};

}  // namespace

std::unique_ptr<ExpertPredictor> MakeLearnedPredictor(const PredictorContext& context) {
  return std::make_unique<LearnedPredictor>(context);
}

}  // namespace moed
