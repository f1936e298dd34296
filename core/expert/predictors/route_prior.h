// Which experts will serve this token? Told before its first layer ran, from its id and what its sequence used; sharpened for the
// layers ahead by the experts of each layer that it passes. Needs no gate.
//
// The log-odds of an expert are a weighted sum: its use and gate weight at the sequence's tokens before, its frequency, how much
// likelier than usual it was when this token came before (a table from tokens to frequencies), a weight for every expert of the
// layer used at the token before, and one for every expert used in each of the layers just passed. Learned online by gradient
// steps on the log loss of what was said once the layer before had passed.
//
// A layer is told of by as many passed ones as have room and as a bound on their work allows. The nearest tells by all of a
// token's choices, the others by its leading ones. What was said when fewer of them had passed is too sure of itself, or not sure
// enough: to measure that, it is kept of each layer at one distance, another one at each token.
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
    uint32_t tokens = 0;             // that were scored
    std::vector<ExpertChoice> last;  // (layers, top k): where it was routed last, top_k times the gate weight; -1: nobody
    std::vector<float> use;          // (layers, experts): average over some twenty tokens
    std::vector<float> logits;       // (layers, experts): as told by the layers passed until now
    std::vector<float> early;        // (layers, experts): the same as it was at a distance
    std::vector<uint32_t> kept;      // (layers): kind of that distance; 0: nothing was kept of this token
  };

  explicit RoutePrior(const ExpertModelShape& context);

  Sequence Start() const;
  // So many sequences share the current step: what bounds the work of one layer's passing is shared out among them.
  void ShareAmong(size_t sequences) { leading_ = std::max<size_t>(1, most_leading_ / std::max<size_t>(1, sequences)); }
  // Fills logits for the layers from `first` on, the one before having been routed, once a token: false if that was done before.
  bool Score(Sequence& sequence, int first);
  // Distances at which the same layers tell are of one kind: those beyond all that tell. The next layer is at distance 1; nobody
  // asks beyond kFarthest. Kinds are from 2 to it.
  static constexpr int kFarthest = 6;
  size_t Kind(int distance) const { return static_cast<size_t>(std::clamp(distance, 2, FarthestKind())); }
  // Log-odds for a layer whose predecessor was routed. (experts)
  void ScoreNext(const Sequence& sequence, int position, std::span<float> logits) const;
  // What the router chose. Weights are learned from tokens that were scored.
  void Learn(int position, const TokenRouting& token, Sequence& sequence);
  // The same of a token that is not the last one of its sequence in the step: nothing was scored for it.
  void LearnTables(int position, const TokenRouting& token, Sequence& sequence);

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
  static size_t MostTableBytes(const ExpertModelShape& context);  // more of them are of no use

 private:
  enum Feature { kBias, kWeight, kUse, kFrequency, kOfToken, kOfTokenTrusted, kNewToken, kFeatures };
  using Weights = std::array<float, kFeatures>;
  static constexpr size_t kScratch = 6;  // arrays (experts)

  static size_t SequenceBytes(size_t layers, size_t experts, size_t top_k) {
    return layers * (3 * experts * sizeof(float) + top_k * sizeof(ExpertChoice) + sizeof(uint32_t));
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
  int reach() const { return static_cast<int>(after_path_.distances()); }
  int FarthestKind() const { return std::clamp(reach() + 1, 2, kFarthest); }
  // Who tells of a layer so far ahead.
  std::span<const ExpertChoice> Tellers(const Sequence& sequence, int position, int distance) const {
    return LastOf(sequence.last, position - distance).first(distance == 1 ? top_k_ : leading_);
  }
  void Tell(int position, int distance, Sequence& sequence) const;
  void Pass(int position, Sequence& sequence) const;
  void Keep(int position, int distance, Sequence& sequence) const;
  void MarkUsed(const TokenRouting& token);
  void LearnUsed(int position, const TokenRouting& token, Sequence& sequence);  // what is marked
  void LearnWeights(int position, const Sequence& sequence);
  void LearnFrequency(int position);

  const ExpertIndex index_;
  const size_t experts_;
  const size_t top_k_;
  std::vector<float> frequency_;  // (layers, experts)
  std::vector<float> odds_;       // (layers, experts): its log odds
  Weights shared_;
  std::vector<Weights> own_;   // (layers)
  PairWeights after_path_;     // from an expert of a passed layer, nearest first; none where they take too much of the table
  PairWeights after_use_;      // from an expert at the token before; likewise
  const size_t most_leading_;  // choices of a token, its first ones, that tell of layers beyond the next; of one sequence alone
  size_t leading_;             // and as shared
  TokenTable of_token_;

  // Scratch. (experts)
  const std::vector<float> zeros_, ones_;
  std::vector<float> likelier_;  // after this token than usual, in log odds
  std::vector<float> of_token_values_;
  std::vector<float> used_;  // 0 or 1
  std::vector<float> error_;
};

}  // namespace moed
