// What HOBBIT (arXiv 2411.01433) sets for a model offline, from that model's own routing: the thresholds T1 and T2 by the shares
// of choices that are to be read high, low and not at all (3.2), and the weights of its eviction by the miss penalty (3.4): a
// missing expert costs 1 at the high precision and B_low / B_high at the low one. By the same penalty how much of the cache is
// the high-precision one, of which the paper says no number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/expert/fidelity/hobbit.h"
#include "core/expert/part_context.h"
#include "core/expert/policies/hobbit.h"

namespace moed {

// Of a token's choices, by share of their number; the rest is skipped. The default is what the paper's thresholds make of
// Mixtral.
struct HobbitSplit {
  double high = 0.67;
  double low = 0.30;
};

// Tokens one by one, as answers come.
struct HobbitRouting {
  struct Choice {
    int32_t expert = 0;
    float before = 0;  // the score s: share of the token's gate mass that its better choices have
  };
  int layers = 0, top_k = 0;
  std::vector<Choice> choices;        // (tokens, layers, top_k), highest gate weight first
  std::vector<size_t> sequence_ends;  // tokens until then, ascending

  size_t tokens() const { return layers == 0 ? 0 : choices.size() / (static_cast<size_t>(layers) * static_cast<size_t>(top_k)); }
};

// Appends the scores of one token in one layer, of its gate weights from the highest on.
void AddScored(std::span<const int32_t> experts, std::span<const float> weights, HobbitRouting& routing);

// Of all choices at most the share `split.high` has a score up to T1, and `split.high + split.low` one up to T2, as nearly as
// their scores let them. At least one choice.
HobbitThresholds ThresholdsOfSplit(const HobbitRouting& routing, const HobbitSplit& split);
// What these thresholds make of it.
HobbitSplit SplitOfThresholds(const HobbitRouting& routing, const HobbitThresholds& thresholds);

// Of demands alone, through a cache of model.capacity_bytes; by choice. What is resident high is used so, whatever its score.
double HobbitMissPenalty(const HobbitRouting& routing, const ExpertModelShape& model, const HobbitThresholds& thresholds,
                         const HobbitTuning& tuning);

// The best of a grid over the weights, refined around its best down to 1/20; then the best share of the high-precision cache
// with them. `penalty` may remember what it said, and ends the search by an error.
struct HobbitFound {
  HobbitTuning tuning;
  double penalty = 0;
};
absl::StatusOr<HobbitFound> SearchHobbitTuning(const std::function<absl::StatusOr<double>(const HobbitTuning&)>& penalty);

}  // namespace moed
