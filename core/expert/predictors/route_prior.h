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

#include "core/base/expert_choice.h"
#include "core/base/ids.h"
#include "core/expert/expert_index.h"
#include "core/expert/learning/pair_weights.h"
#include "core/expert/learning/token_table.h"
#include "core/expert/part_context.h"
#include "core/expert/routing.h"

namespace moed {

// Deterministic. Not synchronised. Layers are positions among the MoE layers.
class RoutePrior {
 public:
  // What is kept of one sequence.
  struct Sequence {
    TokenId token{-1};               // that is being computed
    bool scored = false;             // logits are of that token
    std::vector<ExpertChoice> last;  // (layers, top k): where it was routed last, top_k times the gate weight; -1: nobody
    std::vector<float> use;          // (layers, experts): average over some twenty tokens
    std::vector<float> logits;       // (layers, experts): before the token's first layer ran
  };

  explicit RoutePrior(const ExpertModelShape& context);

  Sequence Start() const;
  // Fills logits for the layers from `first` on, once a token: false if that was done before.
  bool Score(Sequence& sequence, int first);
  // Log-odds for a layer whose predecessor was routed. (experts)
  void ScoreNext(const Sequence& sequence, int position, std::span<float> logits) const;
  // What the router chose. Weights are learned from tokens that were scored.
  void Learn(int position, const TokenRouting& token, Sequence& sequence);

  // Of the sequence's token, in the table: 0 = never seen.
  int occurrences(const Sequence& sequence) const;
  size_t sequence_bytes() const { return SequenceBytes(static_cast<size_t>(index_.layers()), experts_, top_k_); }
  static size_t SequenceBytes(const ExpertModelShape& context) {
    return SequenceBytes(context.moe_layers.size(), static_cast<size_t>(context.experts_per_layer),
                         static_cast<size_t>(std::min(context.top_k, context.experts_per_layer)));
  }
  void VisitLearned(LearnedState& state);
  size_t memory_bytes() const;
  // The same at table_bytes 0; it grows by no more than those.
  static size_t BytesWithoutTable(const ExpertModelShape& context);

 private:
  enum Feature { kBias, kWeight, kUse, kFrequency, kOfToken, kOfTokenTrusted, kNewToken, kFeatures };
  using Weights = std::array<float, kFeatures>;
  static constexpr size_t kScratch = 6;  // arrays (experts)

  static size_t SequenceBytes(size_t layers, size_t experts, size_t top_k) {
    return layers * (2 * experts * sizeof(float) + top_k * sizeof(ExpertChoice));
  }
  static size_t FixedBytes(size_t layers, size_t experts);

  size_t At(int position) const { return static_cast<size_t>(position) * experts_; }
  std::span<float> Layer(std::vector<float>& per_expert, int position) const {
    return std::span(per_expert).subspan(At(position), experts_);
  }
  template <class Vector>
  auto LastOf(Vector& last, int position) const {
    return std::span(last).subspan(static_cast<size_t>(position) * top_k_, top_k_);
  }
  TokenTable::Unseen Unseen(int position) const { return {std::span(frequency_).subspan(At(position), experts_), zeros_}; }
  float LookUpToken(int position, const Sequence& sequence);
  void LearnWeights(int position, const Sequence& sequence);
  void LearnFrequency(int position);

  const ExpertIndex index_;
  const size_t experts_;
  const size_t top_k_;
  std::vector<float> frequency_;  // (layers, experts)
  std::vector<float> odds_;       // (layers, experts): its log odds
  Weights shared_;
  std::vector<Weights> own_;  // (layers)
  PairWeights after_path_;    // from an expert of the layer before; none where they take too much of the table's bytes
  PairWeights after_use_;     // from an expert at the token before; likewise
  TokenTable of_token_;

  // Scratch. (experts)
  const std::vector<float> zeros_, ones_;
  std::vector<float> likelier_;  // after this token than usual, in log odds
  std::vector<float> of_token_values_;
  std::vector<float> used_;  // 0 or 1
  std::vector<float> error_;
};

}  // namespace moed
