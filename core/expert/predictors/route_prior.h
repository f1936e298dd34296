// Which experts will serve this token? Told before its first layer ran, from its id and what its sequence used; sharpened for the
// next layer by the experts of the layer before. Needs no gate.
//
// The log-odds of an expert are a weighted sum: its use and gate weight at the sequence's tokens before, its frequency, how much
// likelier than usual it was when this token came before (a table from tokens to frequencies), a weight for every expert of the
// layer used at the token before, and one for every expert used in the layer before. Learned online by gradient steps on the log
// loss.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/expert/expert_index.h"
#include "core/expert/learning/token_table.h"
#include "core/expert/part_context.h"
#include "core/expert/routing.h"

namespace moed {

// Deterministic. Not synchronised. Layers are positions among the MoE layers.
class RoutePrior {
 public:
  // What is kept of one sequence.
  struct Sequence {
    TokenId token{-1};          // that is being computed
    bool scored = false;        // logits are of that token
    std::vector<float> weight;  // (layers, experts): top_k times the gate weight at the token before
    std::vector<float> use;     // (layers, experts): average over some twenty tokens
    std::vector<float> logits;  // (layers, experts): before the token's first layer ran
    std::vector<int32_t> path;  // experts of the layer that was routed last
  };

  explicit RoutePrior(const ExpertModelShape& context);

  Sequence Start() const;
  // Fills logits for the layers from `first` on, once a token.
  void Score(Sequence& sequence, int first);
  // Log-odds for a layer whose predecessor was routed. (experts)
  void ScoreNext(const Sequence& sequence, int position, std::span<float> logits) const;
  // What the router chose. Weights are learned from tokens that were scored.
  void Learn(int position, const TokenRouting& token, Sequence& sequence);

  // Of the sequence's token, in the table: 0 = never seen.
  int occurrences(const Sequence& sequence) const;
  size_t sequence_bytes() const { return SequenceBytes(index_.size(), top_k_); }
  static size_t SequenceBytes(const ExpertModelShape& context) {
    return SequenceBytes(context.experts(), static_cast<size_t>(std::min(context.top_k, context.experts_per_layer)));
  }
  void VisitLearned(LearnedState& state);
  size_t memory_bytes() const;
  // The same at table_bytes 0; it grows by no more than those.
  static size_t BytesWithoutTable(const ExpertModelShape& context);

 private:
  enum Feature { kBias, kWeight, kUse, kFrequency, kOfToken, kOfTokenTrusted, kNewToken, kFeatures };
  using Weights = std::array<float, kFeatures>;

  static size_t SequenceBytes(size_t experts_of_all_layers, size_t top_k) {
    return 3 * experts_of_all_layers * sizeof(float) + top_k * sizeof(int32_t);
  }
  size_t At(int position) const { return static_cast<size_t>(position) * experts_; }
  const float* PairsOf(const std::vector<float>& pairs, int position, size_t from) const {
    return &pairs[(At(position) + from) * experts_];
  }
  void FillFeatures(int position, const Sequence& sequence);
  void LearnWeights(int position, const Sequence& sequence);

  const ExpertIndex index_;
  const size_t experts_;
  const size_t top_k_;
  std::vector<float> frequency_;  // (layers, experts)
  Weights shared_;
  std::vector<Weights> own_;       // (layers)
  std::vector<float> after_path_;  // (layers, experts of the layer before, experts); empty where it takes too much
  std::vector<float> after_use_;   // (layers, experts at the token before, experts); likewise
  TokenTable of_token_;

  // Scratch.
  std::vector<float> features_;  // (kFeatures, experts)
  std::vector<float> used_;      // (experts) 0 or 1
  std::vector<float> error_;     // (experts)
};

}  // namespace moed
