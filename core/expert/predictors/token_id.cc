// The token alone says much about its experts in every layer: hash-routed layers are chosen by it, learned routers lean on it. A
// bounded table from tokens to the share of their occurrences that each expert served, shrunk towards the expert's frequency, is
// learned while serving. It needs no computation of the layers between and so looks far ahead.
#include "core/expert/predictors/token_id.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/check.h"
#include "core/expert/expert_index.h"
#include "core/expert/learning/token_table.h"

namespace moed {
namespace {

constexpr int kLayersAhead = 8;
constexpr float kCostOfALayer = 0.01f;  // probability that a guess needs more to go first, for each layer it is farther away
constexpr float kLeastProbability = 0.05f;
constexpr float kFrequencyRate = 0.02f;  // a token
constexpr size_t kPromptTokens = 16;     // learned from in one step, its last ones
constexpr size_t kScratch = 3;           // arrays (experts)
constexpr float kTableBase = 3;          // occurrences

class TokenIdPredictor final : public ExpertPredictor {
 public:
  explicit TokenIdPredictor(const PartContext& context)
      : index_(context.model.moe_layers, context.model.experts_per_layer, 1),
        experts_(static_cast<size_t>(context.model.experts_per_layer)),
        frequency_(index_.size(), static_cast<float>(context.model.top_k) / static_cast<float>(experts_)),
        of_token_(context.model, context.model.table_bytes, kTableBase),
        nobody_(experts_),
        used_(experts_),
        of_token_values_(experts_) {}

  bool paced() const override { return true; }

  void OnSequenceEnd(SequenceId sequence) override { decoding_.erase(sequence); }

  void OnRouted(const LayerRouting& routing) override {
    const int position = index_.Position(routing.layer);
    for (size_t i = 0; i < routing.tokens.size(); ++i) {
      const TokenRouting& token = routing.tokens[i];
      if (token.phase == Phase::kPrefill) {
        decoding_.erase(token.sequence);
        if (i + kPromptTokens < routing.tokens.size()) continue;
      } else {
        decoding_[token.sequence] = token.token;
      }
      Learn(position, token);
    }
  }

  void Predict(SequenceId sequence, LayerId from, std::vector<Guess>& best_first) override {
    const auto token = decoding_.find(sequence);
    if (token == decoding_.end()) return;
    const int found = of_token_.Find(token->second);
    const int row = found != TokenTable::kNoRow && of_token_.occurrences(found) > 0 ? found : TokenTable::kNoRow;
    const int here = index_.Position(from);
    const size_t first = best_first.size();
    for (int position = here + 1; position <= std::min(here + kLayersAhead, index_.layers() - 1); ++position) {
      GuessLayer(row, position, position - here, best_first);
    }
    const auto worth = [](const Guess& guess) {
      return guess.probability - kCostOfALayer * static_cast<float>(guess.layer_distance);
    };
    std::sort(best_first.begin() + static_cast<std::ptrdiff_t>(first), best_first.end(), [&](const Guess& a, const Guess& b) {
      const float x = worth(a), y = worth(b);
      return x != y ? x > y : a.key < b.key;
    });
  }

  size_t memory_bytes() const override {
    return (frequency_.size() + kScratch * experts_) * sizeof(float) + of_token_.memory_bytes() +
           decoding_.size() * sizeof(std::pair<SequenceId, TokenId>);
  }

 private:
  size_t At(int position) const { return static_cast<size_t>(position) * experts_; }

  TokenTable::Unseen Unseen(int position) const { return {std::span(frequency_).subspan(At(position), experts_), nobody_}; }

  // A token that was never seen has the experts' frequency.
  void GuessLayer(int row, int position, int distance, std::vector<Guess>& guesses) {
    std::copy_n(&frequency_[At(position)], experts_, of_token_values_.begin());
    if (row != TokenTable::kNoRow) of_token_.Values(row, position, Unseen(position), of_token_values_);
    for (size_t e = 0; e < experts_; ++e) {
      const float p = of_token_values_[e];
      if (p >= kLeastProbability) guesses.push_back({{index_.Layer(position), static_cast<int32_t>(e)}, p, distance});
    }
  }

  void Learn(int position, const TokenRouting& token) {
    std::ranges::fill(used_, 0.f);
    for (const ExpertChoice& choice : token.choices) used_[static_cast<size_t>(choice.expert)] = 1;
    const std::span<float> frequency = std::span(frequency_).subspan(At(position), experts_);
    const int row = of_token_.FindAt(position, token.token);
    if (row != TokenTable::kNoRow) {
      of_token_.Learn(row, position, token.choices, used_, Unseen(position));
      of_token_.CountAt(position, row);
    }
    for (size_t e = 0; e < experts_; ++e) frequency[e] += (used_[e] - frequency[e]) * kFrequencyRate;
  }

  const ExpertIndex index_;
  const size_t experts_;
  std::vector<float> frequency_;  // (layers, experts)
  TokenTable of_token_;
  absl::flat_hash_map<SequenceId, TokenId> decoding_;  // the token that is computed
  // Scratch. (experts)
  const std::vector<float> nobody_;
  std::vector<float> used_, of_token_values_;
};

}  // namespace

std::unique_ptr<ExpertPredictor> MakeTokenIdPredictor(const PartContext& context) {
  return std::make_unique<TokenIdPredictor>(context);
}

PartMemory TokenIdMemory(const PartContext& context, const PartOptions&) {
  const size_t experts = context.model.experts();
  return {.fixed_bytes = (experts + kScratch * static_cast<size_t>(context.model.experts_per_layer)) * sizeof(float) +
                         TokenTable::LeastBytes(context.model),
          .tables = 1,
          .most_table_bytes = TokenTable::MostBytes(context.model)};
}

}  // namespace moed
