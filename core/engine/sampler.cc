#include "core/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/exponential.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();
constexpr float kLowestLogRatio = -50.0f;  // of a token's probability to the highest

float Finite(float logit) { return std::clamp(logit, std::numeric_limits<float>::lowest(), std::numeric_limits<float>::max()); }

// SplitMix64's finalizer: a bijection whose outputs pass for random.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

bool Adjusts(const SamplingParams& params, const SamplingContext& context) {
  return !params.logit_bias.empty() || params.repetition_penalty != 1 || params.frequency_penalty != 0 ||
         params.presence_penalty != 0 || !context.forbidden.empty() || !context.allowed.empty();
}

// Orders ids by value, highest first, and equals by id.
auto HigherFirst(std::span<const float> values) {
  return [values](int32_t a, int32_t b) { return values[a] > values[b] || (values[a] == values[b] && a < b); };
}

}  // namespace

double UniformAt(uint64_t seed, uint64_t length) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
  const uint64_t bits = Mix(Mix(seed + kGolden) ^ (length * kGolden));
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

Sampler::Sampler(int vocabulary) : adjusted_(vocabulary), counts_(vocabulary), weights_(vocabulary) {
  kept_.reserve(vocabulary);
  ranking_.reserve(vocabulary);
}

uint64_t Sampler::ScratchBytes(int vocabulary) {
  return static_cast<uint64_t>(vocabulary) * (sizeof(float) * 2 + sizeof(int32_t) * 3);
}

absl::StatusOr<TokenId> Sampler::Sample(std::span<const float> logits, const SamplingParams& params,
                                        const SamplingContext& context) {
  if (Adjusts(params, context)) {
    adjusted_.assign(logits.begin(), logits.end());
    Adjust(params, context);
    logits = adjusted_;
  }
  size_t best = 0;
  bool numbers = true;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > logits[best]) best = i;
    numbers = numbers && !std::isnan(logits[i]);
  }
  const float highest = logits[best];
  if (!numbers || std::isinf(highest)) {
    return Internal(numbers && highest < 0 ? "no token is left to choose from" : "the model's logits are not finite numbers");
  }
  if (params.temperature == 0) return TokenId(static_cast<int32_t>(best));
  Weigh(logits, params, highest);
  if (params.top_p < 1) KeepTopP(params.top_p);
  std::erase_if(kept_, [&](int32_t id) { return weights_[id] < params.min_p; });
  return Draw(UniformAt(context.seed, context.sequence.size()));
}

void Sampler::Adjust(const SamplingParams& params, const SamplingContext& context) {
  for (const auto& [token, bias] : params.logit_bias) adjusted_[token.value()] += bias;
  Penalize(params, context);
  if (!context.allowed.empty()) KeepAllowed(context);
  for (TokenId token : context.forbidden) adjusted_[token.value()] = kForbidden;
}

void Sampler::KeepAllowed(const SamplingContext& context) {
  for (TokenId token : context.ending) weights_[token.value()] = adjusted_[token.value()];  // not in use yet
  for (size_t word = 0; word * 64 < adjusted_.size(); ++word) {
    const uint64_t bits = context.allowed[word];
    if (bits == ~uint64_t{0}) continue;
    const size_t end = std::min(word * 64 + 64, adjusted_.size());
    for (size_t token = word * 64; token < end; ++token) {
      if ((bits >> (token % 64) & 1) == 0) adjusted_[token] = kForbidden;
    }
  }
  for (TokenId token : context.ending) adjusted_[token.value()] = weights_[token.value()];
}

void Sampler::Penalize(const SamplingParams& params, const SamplingContext& context) {
  if (params.repetition_penalty != 1) {
    for (TokenId token : context.sequence) {
      if (counts_[token.value()]++ > 0) continue;
      float& logit = adjusted_[token.value()];
      logit = Finite(logit < 0 ? logit * params.repetition_penalty : logit / params.repetition_penalty);
    }
    for (TokenId token : context.sequence) counts_[token.value()] = 0;
  }
  if (params.frequency_penalty == 0 && params.presence_penalty == 0) return;
  const auto answer = context.sequence.subspan(context.answer_begin);
  for (TokenId token : answer) ++counts_[token.value()];
  for (TokenId token : answer) {
    int32_t& count = counts_[token.value()];
    if (count == 0) continue;  // done with its first occurrence
    adjusted_[token.value()] -= params.frequency_penalty * static_cast<float>(count) + params.presence_penalty;
    count = 0;
  }
}

// Steps 5 and 6: kept_ and its weights.
void Sampler::Weigh(std::span<const float> logits, const SamplingParams& params, float highest) {
  kept_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if ((logits[i] - highest) / params.temperature > kLowestLogRatio) kept_.push_back(static_cast<int32_t>(i));
  }
  if (params.top_k > 0) KeepTopK(logits, params.top_k);
  for (int32_t id : kept_) weights_[id] = Exponential((logits[id] - highest) / params.temperature);
}

void Sampler::KeepTopK(std::span<const float> logits, int count) {
  if (kept_.size() <= static_cast<size_t>(count)) return;
  const auto higher = HigherFirst(logits);
  ranking_ = kept_;
  const auto boundary = ranking_.begin() + (count - 1);
  std::nth_element(ranking_.begin(), boundary, ranking_.end(), higher);
  std::erase_if(kept_, [&](int32_t id) { return higher(*boundary, id); });
}

// Sorts only as far as the probabilities reach: the first few ids, then four times as many, ...
void Sampler::KeepTopP(float top_p) {
  double total = 0;
  for (int32_t id : kept_) total += weights_[id];
  const auto higher = HigherFirst(weights_);
  ranking_ = kept_;
  double sum = 0;
  for (size_t sorted = 0, next = 64; sorted < ranking_.size(); sorted = next, next *= 4) {
    next = std::min(next, ranking_.size());
    const auto begin = ranking_.begin() + sorted, end = ranking_.begin() + next;
    if (end != ranking_.end()) std::nth_element(begin, end, ranking_.end(), higher);
    std::sort(begin, end, higher);
    for (auto id = begin; id != end; ++id) {
      sum += weights_[*id];
      if (sum < top_p * total) continue;
      std::erase_if(kept_, [&](int32_t other) { return higher(*id, other); });
      return;
    }
  }
}

TokenId Sampler::Draw(double uniform) const {
  double total = 0;
  for (int32_t id : kept_) total += weights_[id];
  double left = uniform * total;
  for (int32_t id : kept_) {
    left -= weights_[id];
    if (left < 0) return TokenId(id);
  }
  return TokenId(kept_.back());  // rounding
}

}  // namespace moed
