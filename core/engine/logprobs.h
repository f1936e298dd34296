// Log probabilities of the model's own distribution: the softmax of its raw logits.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "core/base/ids.h"

namespace moed {

// log(sum(exp(logits))): logprob of token t = logits[t] - LogNormalizer(logits). NaN when a logit is NaN or +inf.
double LogNormalizer(std::span<const float> logits);

// The `count` most likely tokens with their log probabilities, best first; among equals the lower id first.
std::vector<std::pair<TokenId, float>> TopLogprobs(std::span<const float> logits, double log_normalizer, int count);

}  // namespace moed
