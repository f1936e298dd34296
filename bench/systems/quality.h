// What an answer loses: a text scored by a contender and by exact computation, token by token.
#pragma once

#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/systems/journal.h"
#include "bench/systems/setup.h"

namespace moed {

// Alternatives at each position, and the log probability of the token that came.
struct ScoredWindow {
  std::vector<float> logprobs;
  std::vector<std::map<int, float>> top;  // token -> log probability
  std::vector<int> best;                  // the likeliest token
};

struct ScoredText {
  std::vector<ScoredWindow> windows;
  double gate_mass_lost = 0;  // share a token lost, on average
};

// As answers: in steps of one token, which rules and masks treat as steps of an answer. As prompts: in steps as long as a window.
enum class ScoredAs { kAnswers, kPrompts };

// Scores `bench.quality_ids` in windows, as many as `seconds` allow, at least one, after a prompt and its answer that are not
// scored: whoever learns or chooses while serving has begun to.
absl::StatusOr<ScoredText> ScoreText(const SystemsBench& bench, const Contender& contender, const Cell& cell, ScoredAs as,
                                     double seconds);

// KL(exact || lossy) of one position's distributions over the tokens that both lists name, and one bucket for all others: at most
// the divergence over the whole vocabulary.
double BucketedDivergence(const std::map<int, float>& exact, const std::map<int, float>& lossy);

// perplexity exact_perplexity top1_agreement kl scored_tokens gate_mass_lost, over the windows that both have.
Figures CompareQuality(const ScoredText& exact, const ScoredText& lossy);

}  // namespace moed
