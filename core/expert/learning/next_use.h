// When will an expert be used again? One small model for all of them, learned while the daemon runs.
//
// The value of an expert is E[g^t]: t = tokens until its next use, counted from the next visit to its layer (0 = used there), and
// g = kDiscount. It is the logistic of a weighted sum of features: how often, how recently and with what gate weight the expert
// was used, what its use was like in the past after the token that was computed last (a table from tokens to values), and which
// experts of its own layer and of others were used last (a weight for every pair of experts). Each visit to a layer brings the
// value before it nearer to what was seen: 1 for a used expert, g times its value after the visit for any other (temporal
// difference). Weights of features are a sum of a part for all layers and one for each layer, and begin as recency and frequency.
//
// A visit is one decode step, whatever the number of sequences in it, or one of the last tokens of a prefill step. Tokens whose
// gate weights are no numbers are none.
//
// What is learned in a visit counts once it is published, so that learning needs no lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/expert/expert_index.h"
#include "core/expert/learning/pair_weights.h"
#include "core/expert/learning/token_table.h"
#include "core/expert/part_context.h"
#include "core/expert/routing.h"

namespace moed {

// Deterministic. Learned from on one thread, published and asked under the cache's lock.
class NextUse {
 public:
  explicit NextUse(const ExpertModelShape& context);

  void Learn(const LayerRouting& routing);
  // Instead of Learn, where nothing has to be chosen: how often experts are used is still counted.
  void CountFrequencies(const LayerRouting& routing);
  // Of one layer, what was learned until now.
  void Publish(int position);

  // As published. Experts are numbered through all layers, in their order.
  float Value(size_t expert) const { return published_[expert]; }
  // The value of who is used in so many tokens.
  static float ValueIn(float tokens);

  // Of a layer's experts: the share of its visits that used them, in the long run.
  std::span<const float> Frequency(int position) const { return std::span(frequency_).subspan(At(position), experts_); }

  void VisitLearned(LearnedState& state);
  size_t memory_bytes() const {
    return FixedBytes(own_.size(), experts_) + after_use_.memory_bytes() + after_token_.memory_bytes();
  }
  // The same at table_bytes 0; it grows by no more than those.
  static size_t BytesWithoutTable(const ExpertModelShape& context);
  static size_t MostTableBytes(const ExpertModelShape& context);  // more of them are of no use

 private:
  static size_t FixedBytes(size_t layers, size_t experts);

  enum Feature {
    kBias,
    kUse2,
    kUse5,
    kUse20,
    kUse100,
    kFrequency,
    kRecency,
    kWeight,
    kWeight5,
    kAfterToken,
    kAfterTrusted,
    kFeatures
  };
  using Weights = std::array<float, kFeatures>;
  static Weights FirstWeights();

  // An expert that tells of those of another layer, or of its own.
  struct Teller {
    size_t distance;  // the place of its table
    size_t expert;
    float weight;  // top_k times its gate weight
  };

  size_t At(int position) const { return static_cast<size_t>(position) * experts_; }
  std::span<float> Layer(std::vector<float>& per_expert, int position) const {
    return std::span(per_expert).subspan(At(position), experts_);
  }
  std::span<float> Row(int position, Feature feature) {
    return std::span(features_).subspan(At(position) * kFeatures + static_cast<size_t>(feature) * experts_, experts_);
  }

  std::span<const float> LayerFeatures(int position) const {
    return std::span(features_).subspan(At(position) * kFeatures, kFeatures * experts_);
  }

  void Visit(int position);
  void FindTellers(int position, const std::vector<float>& of_others);
  void MarkUsed();
  void CountUses(int position);
  void LookUpTokens(int position);
  void Score(int position, std::span<const float> features, std::span<float> values) const;
  void LearnWeights(int position);
  void LearnTable(int position);
  // Visits one after the other, tokens_ being those of one.
  void ForEachVisit(const LayerRouting& routing, void (NextUse::*visit)(int position));
  void CountFrequency(int position);
  TokenTable::Unseen Unseen(int position) const {
    return {std::span(usual_value_).subspan(At(position), experts_), std::span(unused_value_).subspan(At(position), experts_)};
  }

  const ExpertIndex index_;
  const size_t experts_;
  const float top_k_;
  const size_t leading_;  // choices of a token, its first ones, that tell of other layers

  std::vector<float> features_;      // (layers, kFeatures, experts), as of the last visit
  std::vector<float> frequency_;     // (layers, experts)
  std::vector<float> unused_for_;    // (layers, experts): visits since the last use
  std::vector<float> usual_value_;   // (layers, experts): slow average of the targets
  std::vector<float> unused_value_;  // (layers, experts): the same of visits that did not use it
  std::vector<float> learned_;       // (layers, experts): values after the last visit
  std::vector<float> published_;     // (layers, experts): of them, those that count
  std::vector<float> visits_;        // (layers)
  Weights shared_;
  std::vector<Weights> own_;             // (layers)
  PairWeights after_use_;                // from an expert used at its layer's last visit; of as many distances as have room
  std::vector<float> used_last_;         // (layers, experts): top_k times the gate weight at the last visit
  std::vector<float> led_last_;          // (layers, experts): the same of leading choices alone
  std::vector<float> led_last_but_one_;  // (layers, experts): at the visit before that
  std::vector<float> others_told_;       // (layers): 1 where features are of a visit at which other layers' experts told, else 0
  TokenTable after_token_;

  // Of the current visit.
  std::vector<const TokenRouting*> tokens_;
  std::vector<float> used_;                // (experts) 0 or 1
  std::vector<float> weight_;              // (experts) highest gate weight among the tokens
  std::vector<float> leading_weight_;      // (experts) the same of leading choices
  std::vector<float> values_;              // (experts) after it
  std::vector<float> targets_;             // (experts)
  std::vector<float> errors_;              // (experts): of the values after the last one
  std::vector<float> nobody_uses_;         // (experts): the chance, as far as its tokens are known
  std::vector<float> token_targets_;       // (experts) of one token
  std::vector<float> after_token_values_;  // (experts) likewise
  std::vector<float> features_before_;     // (kFeatures, experts)
  std::vector<Teller> tellers_;            // (distances, experts) at most, by distance
  std::vector<Teller> tellers_before_;     // likewise
};

}  // namespace moed
