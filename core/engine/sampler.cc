#include "core/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "core/base/exponential.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();
constexpr float kLowestLogRatio = -50.0f;  // of a token's probability to the highest
constexpr size_t kDrawBlock = 512;         // tokens whose weights are added up before they join the others'

float Finite(float logit) { return std::clamp(logit, std::numeric_limits<float>::lowest(), std::numeric_limits<float>::max()); }

// SplitMix64's finalizer: a bijection whose outputs pass for random.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

bool Adjusts(const SamplingParams& params, const SamplingContext& context) {
  return !params.logit_bias.empty() || params.repetition_penalty != 1 || params.frequency_penalty != 0 ||
         params.presence_penalty != 0 || !context.forbidden.empty() || !context.allowed.empty() || !context.avoided.empty();
}

// The highest logit, and whether all are numbers. In lanes, for the compiler's vectors.
std::pair<float, bool> Highest(std::span<const float> logits) {
  constexpr size_t kLanes = 16;
  float highest[kLanes];
  int numbers[kLanes];
  std::fill_n(highest, kLanes, kForbidden);
  std::fill_n(numbers, kLanes, 1);
  const auto take = [&](size_t first, size_t count) {
    for (size_t lane = 0; lane < count; ++lane) {
      const float logit = logits[first + lane];
      highest[lane] = logit > highest[lane] ? logit : highest[lane];
      numbers[lane] &= logit == logit;
    }
  };
  const size_t whole = logits.size() / kLanes * kLanes;
  for (size_t first = 0; first < whole; first += kLanes) take(first, kLanes);
  take(whole, logits.size() - whole);
  return {*std::ranges::max_element(highest), std::ranges::count(numbers, 0) == 0};
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
  block_weights_.reserve(vocabulary / kDrawBlock + 1);
}

uint64_t Sampler::ScratchBytes(int vocabulary) {
  return static_cast<uint64_t>(vocabulary) * (sizeof(float) * 2 + sizeof(int32_t) * 3) +
         (vocabulary / kDrawBlock + 1) * sizeof(double);
}

absl::StatusOr<TokenId> Sampler::Sample(std::span<const float> logits, const SamplingParams& params,
                                        const SamplingContext& context) {
  if (Adjusts(params, context)) {
    adjusted_.assign(logits.begin(), logits.end());
    Adjust(params, context);
    logits = adjusted_;
  }
  const auto [highest, numbers] = Highest(logits);
  if (!numbers || std::isinf(highest)) {
    return Internal(numbers && highest < 0 ? "no token is left to choose from" : "the model's logits are not finite numbers");
  }
  if (params.temperature == 0) return TokenId(static_cast<int32_t>(std::ranges::find(logits, highest) - logits.begin()));
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
  if (!context.avoided.empty()) Avoid(context.avoided);
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

void Sampler::Avoid(std::span<const TokenId> tokens) {
  for (TokenId token : tokens) weights_[token.value()] = adjusted_[token.value()];  // not in use yet
  for (TokenId token : tokens) adjusted_[token.value()] = kForbidden;
  if (std::ranges::any_of(adjusted_, [](float logit) { return logit != kForbidden; })) return;
  for (TokenId token : tokens) adjusted_[token.value()] = weights_[token.value()];
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
  const size_t size = logits.size();
  for (size_t i = 0; i < size; ++i) weights_[i] = (logits[i] - highest) / params.temperature;
  kept_.resize(size);
  size_t kept = 0;
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < size) {
    kept = KeepTopK(logits, params.top_k);
  } else {
    for (size_t i = 0; i < size; ++i) {
      kept_[kept] = static_cast<int32_t>(i);
      kept += weights_[i] > kLowestLogRatio ? 1 : 0;
    }
  }
  kept_.resize(kept);
  if (kept > size / 4) {
    for (float& weight : weights_) weight = Exponential(std::max(weight, kLowestLogRatio));
  } else {
    for (int32_t id : kept_) weights_[id] = Exponential(weights_[id]);
  }
}

// How many: fewer than `count` where others are too unlikely. ranking_ is a heap of the best so far, the worst of them in front.
size_t Sampler::KeepTopK(std::span<const float> logits, int count) {
  const auto higher = HigherFirst(logits);
  const auto likely = [&](int32_t id) { return weights_[id] > kLowestLogRatio; };
  ranking_.resize(count);
  std::iota(ranking_.begin(), ranking_.end(), 0);
  std::ranges::make_heap(ranking_, higher);
  float bound = logits[ranking_.front()];
  for (auto id = static_cast<int32_t>(count); id < static_cast<int32_t>(logits.size()); ++id) {
    if (!(logits[id] > bound)) continue;
    std::ranges::pop_heap(ranking_, higher);
    ranking_.back() = id;
    std::ranges::push_heap(ranking_, higher);
    bound = logits[ranking_.front()];
  }
  std::ranges::sort(ranking_);
  return std::ranges::copy_if(ranking_, kept_.begin(), likely).out - kept_.begin();
}

// Ranks only what can matter: all tokens below the least weight together are less than what may be left out. Sorts only as far as
// the probabilities reach: the first few ids, then four times as many, ...
void Sampler::KeepTopP(float top_p) {
  double total = 0;
  for (int32_t id : kept_) total += weights_[id];
  const auto higher = HigherFirst(weights_);
  const double least = (1.0 - top_p) * total / (2.0 * static_cast<double>(kept_.size()));
  ranking_.clear();
  std::ranges::copy_if(kept_, std::back_inserter(ranking_), [&](int32_t id) { return weights_[id] >= least; });
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

// Of what a block of kept tokens weighs only the sum is looked at, but for the block that the number falls into.
TokenId Sampler::Draw(double uniform) {
  constexpr size_t kLanes = 4;
  block_weights_.clear();
  for (size_t first = 0; first < kept_.size(); first += kDrawBlock) {
    double lanes[kLanes] = {};
    for (size_t i = first; i < std::min(first + kDrawBlock, kept_.size()); ++i) lanes[i % kLanes] += weights_[kept_[i]];
    block_weights_.push_back((lanes[0] + lanes[2]) + (lanes[1] + lanes[3]));
  }
  double left = uniform * std::accumulate(block_weights_.begin(), block_weights_.end(), 0.0);
  size_t block = 0;
  for (; block + 1 < block_weights_.size() && left >= block_weights_[block]; ++block) left -= block_weights_[block];
  const size_t end = std::min((block + 1) * kDrawBlock, kept_.size());
  for (size_t i = block * kDrawBlock; i < end; ++i) {
    left -= weights_[kept_[i]];
    if (left < 0) return TokenId(kept_[i]);
  }
  return TokenId(kept_[end - 1]);  // rounding
}

}  // namespace moed
