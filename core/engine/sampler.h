// From logits to the next token. The operations, in this order:
//   1 logit_bias           added
//   2 repetition_penalty   once for each token seen in prompt or answer: a positive logit is divided by it, a negative one
//                          multiplied
//   3 frequency, presence  logit -= frequency * count in the answer + presence * (count > 0)
//   4 forbidden tokens     can not be chosen, nor what a format does not allow, nor what is avoided where anything else is left
//   5 temperature          0: the highest logit, the lowest id among equals. Otherwise logits / temperature, softmax, and then
//   6 top_k                the k most likely
//   7 top_p                the fewest most likely of those whose probabilities sum to top_p of what step 6 left
//   8 min_p                those not below min_p times the highest probability
//   9 one draw from what is left, with a random number that depends on (seed, length of the sequence) alone
// Equal logits rank by id, so that the result does not depend on the sorting algorithm. A token less likely than e^-50 times the
// most likely one is never drawn. Probabilities are made by base/exponential.h, so that machines do not differ.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/engine/engine.h"

namespace moed {

struct SamplingContext {
  uint64_t seed = 0;
  std::span<const TokenId> sequence;   // prompt and answer so far, ids below the vocabulary's size
  int answer_begin = 0;                // sequence[answer_begin...] is the answer
  std::span<const TokenId> forbidden;  // not to be chosen now
  std::span<const uint64_t> allowed;   // where given, a bit for each token: others are not to be chosen, but for
  std::span<const TokenId> ending;     // these
  std::span<const TokenId> avoided;    // to be chosen only where nothing else can be
};

// In [0, 1): the random number for the token that follows `length` others. The same on every machine.
double UniformAt(uint64_t seed, uint64_t length);

// Holds scratch only: results depend on the arguments alone. Not synchronised. No allocation once the scratch has grown.
class Sampler {
 public:
  explicit Sampler(int vocabulary);

  // `logits` (vocabulary). INTERNAL when they are not numbers or every token is forbidden.
  absl::StatusOr<TokenId> Sample(std::span<const float> logits, const SamplingParams& params, const SamplingContext& context);

  static uint64_t ScratchBytes(int vocabulary);

 private:
  void Adjust(const SamplingParams& params, const SamplingContext& context);
  void KeepAllowed(const SamplingContext& context);
  void Avoid(std::span<const TokenId> tokens);
  void Penalize(const SamplingParams& params, const SamplingContext& context);
  void Weigh(std::span<const float> logits, const SamplingParams& params, float highest);
  size_t KeepTopK(std::span<const float> logits, int count);
  void KeepTopP(float top_p);
  TokenId Draw(double uniform);

  std::vector<float> adjusted_;   // (vocabulary)
  std::vector<int32_t> counts_;   // (vocabulary), zero between calls
  std::vector<float> weights_;    // (vocabulary), relative to the most likely token's 1; valid for kept_
  std::vector<int32_t> kept_;     // ids that can still be chosen, ascending
  std::vector<int32_t> ranking_;  // kept_ in partial order
  std::vector<double> block_weights_;
};

}  // namespace moed
