#include "core/expert/predictors/route_prior.h"

#include <algorithm>
#include <cmath>

#include "core/expert/learning/logistic.h"

namespace moed {
namespace {

constexpr float kUseRate = 0.05f;        // a token
constexpr float kUseScale = 2;           // of the feature
constexpr float kFrequencyRate = 0.02f;  // a token
constexpr float kFrequencyScale = 0.5f;
constexpr float kLearningRate = 0.02f;  // of the gradient's mean over a layer's experts, for each of the two sets of weights
constexpr float kPairRate = 0.02f;
constexpr float kTrust = 2;        // occurrences of a token after which what is known of it counts half
constexpr size_t kPairsShare = 2;  // weights of pairs may take one of so many parts of the table's bytes
constexpr size_t kTableRows = 8192;
constexpr float kTableBase = 1;  // occurrences
constexpr std::array<float, 7> kFirstWeights = {0, 0.1f, 1, 1.4f, 0.5f, 0.4f, 0};

float LogOdds(float p) {
  p = std::clamp(p, 0.002f, 0.998f);
  return std::log(p / (1 - p));
}

size_t PairBytes(const ExpertModelShape& context) {
  const auto experts = static_cast<size_t>(context.experts_per_layer);
  return context.moe_layers.size() * experts * experts * sizeof(float);
}
// Of the two tables of pairs, those that fit.
size_t PairTables(const ExpertModelShape& context) {
  return std::min<size_t>(2, context.table_bytes / kPairsShare / std::max<size_t>(1, PairBytes(context)));
}

}  // namespace

RoutePrior::RoutePrior(const ExpertModelShape& context)
    : index_(context.moe_layers, context.experts_per_layer, 1),
      experts_(static_cast<size_t>(context.experts_per_layer)),
      top_k_(static_cast<size_t>(std::min(context.top_k, context.experts_per_layer))),
      frequency_(index_.size(), static_cast<float>(top_k_) / static_cast<float>(experts_)),
      shared_(kFirstWeights),
      own_(static_cast<size_t>(index_.layers())),
      after_path_(PairTables(context) >= 1 ? PairBytes(context) / sizeof(float) : 0),
      after_use_(PairTables(context) >= 2 ? PairBytes(context) / sizeof(float) : 0),
      of_token_(index_.size(), context.table_bytes - PairTables(context) * PairBytes(context), kTableRows, kTableBase),
      features_(kFeatures * experts_),
      used_(experts_),
      error_(experts_) {}

RoutePrior::Sequence RoutePrior::Start() const {
  Sequence sequence;
  for (std::vector<float>* values : {&sequence.weight, &sequence.use, &sequence.logits}) values->resize(index_.size());
  sequence.use = frequency_;
  sequence.path.reserve(top_k_);
  return sequence;
}

int RoutePrior::occurrences(const Sequence& sequence) const {
  const int row = of_token_.Find(sequence.token);
  return row == TokenTable::kNoRow ? 0 : of_token_.occurrences(row);
}

void RoutePrior::FillFeatures(int position, const Sequence& sequence) {
  const float* weight = &sequence.weight[At(position)];
  const float* use = &sequence.use[At(position)];
  const float* frequency = &frequency_[At(position)];
  const int times = occurrences(sequence);
  const float trust = static_cast<float>(times) / (static_cast<float>(times) + kTrust);
  const std::span<const uint8_t> of_token =
      times == 0 ? std::span<const uint8_t>() : of_token_.Values(of_token_.Find(sequence.token), At(position), experts_);
  float* features = features_.data();
  for (size_t e = 0; e < experts_; ++e) {
    const float odds = LogOdds(frequency[e]);
    const float likelier = times == 0 ? 0 : LogOdds(static_cast<float>(of_token[e]) * (1 / 255.f)) - odds;
    features[kBias * experts_ + e] = 1;
    features[kWeight * experts_ + e] = weight[e];
    features[kUse * experts_ + e] = use[e] * kUseScale;
    features[kFrequency * experts_ + e] = odds * kFrequencyScale;
    features[kOfToken * experts_ + e] = likelier;
    features[kOfTokenTrusted * experts_ + e] = likelier * trust;
    features[kNewToken * experts_ + e] = times == 0 ? 1 : 0;
  }
}

void RoutePrior::Score(Sequence& sequence, int first) {
  if (sequence.scored) return;
  sequence.scored = true;
  for (int position = first; position < index_.layers(); ++position) {
    FillFeatures(position, sequence);
    float* logits = &sequence.logits[At(position)];
    std::fill_n(logits, experts_, 0.f);
    for (size_t f = 0; f < kFeatures; ++f) {
      const float weight = shared_[f] + own_[static_cast<size_t>(position)][f];
      const float* row = &features_[f * experts_];
      for (size_t e = 0; e < experts_; ++e) logits[e] += weight * row[e];
    }
    for (size_t from = 0; from < (after_use_.empty() ? 0 : experts_); ++from) {
      const float weight = sequence.weight[At(position) + from];
      if (weight == 0) continue;
      const float* row = PairsOf(after_use_, position, from);
      for (size_t e = 0; e < experts_; ++e) logits[e] += weight * row[e];
    }
  }
}

void RoutePrior::ScoreNext(const Sequence& sequence, int position, std::span<float> logits) const {
  std::copy_n(&sequence.logits[At(position)], experts_, logits.begin());
  if (after_path_.empty()) return;
  for (const int32_t from : sequence.path) {
    const float* row = PairsOf(after_path_, position, static_cast<size_t>(from));
    for (size_t e = 0; e < experts_; ++e) logits[e] += row[e];
  }
}

void RoutePrior::Learn(int position, const TokenRouting& token, Sequence& sequence) {
  std::ranges::fill(used_, 0.f);
  for (const ExpertChoice& choice : token.choices) used_[static_cast<size_t>(choice.expert)] = 1;
  if (sequence.scored && position > 0) LearnWeights(position, sequence);
  sequence.token = token.token;
  if (position == 0 || position + 1 == index_.layers()) sequence.scored = false;

  const std::span<float> frequency = std::span(frequency_).subspan(At(position), experts_);
  const int row = position == 0 ? of_token_.FindOrAdd(token.token) : of_token_.Find(token.token);
  if (row != TokenTable::kNoRow) {
    of_token_.Learn(row, At(position), used_, frequency);
    if (position + 1 == index_.layers()) of_token_.CountOccurrence(row);
  }
  float* use = &sequence.use[At(position)];
  float* weight = &sequence.weight[At(position)];
  for (size_t e = 0; e < experts_; ++e) {
    frequency[e] += (used_[e] - frequency[e]) * kFrequencyRate;
    use[e] += (used_[e] - use[e]) * kUseRate;
    weight[e] = 0;
  }
  sequence.path.clear();
  for (const ExpertChoice& choice : token.choices) {
    weight[static_cast<size_t>(choice.expert)] = choice.probability * static_cast<float>(top_k_);
    sequence.path.push_back(choice.expert);
  }
}

// From what was said of this layer, its predecessor known; used_ is the truth.
void RoutePrior::LearnWeights(int position, const Sequence& sequence) {
  ScoreNext(sequence, position, error_);
  for (size_t e = 0; e < experts_; ++e) error_[e] = used_[e] - Logistic(error_[e]);
  FillFeatures(position, sequence);
  Weights& own = own_[static_cast<size_t>(position)];
  for (size_t f = 0; f < kFeatures; ++f) {
    const float* row = &features_[f * experts_];
    float gradient = 0;
    for (size_t e = 0; e < experts_; ++e) gradient += error_[e] * row[e];
    const float step = gradient * kLearningRate / static_cast<float>(experts_);
    shared_[f] += step;
    own[f] += step;
  }
  const auto learn = [&](std::vector<float>& pairs, size_t from, float input) {
    float* row = &pairs[(At(position) + from) * experts_];
    for (size_t e = 0; e < experts_; ++e) row[e] += kPairRate * input * error_[e];
  };
  for (const int32_t from : sequence.path) {
    if (!after_path_.empty()) learn(after_path_, static_cast<size_t>(from), 1);
  }
  for (size_t from = 0; from < (after_use_.empty() ? 0 : experts_); ++from) {
    const float weight = sequence.weight[At(position) + from];
    if (weight != 0) learn(after_use_, from, weight);
  }
}

void RoutePrior::VisitLearned(LearnedState& state) {
  state.Values(frequency_, Within{0, 1});
  state.Values(shared_, kCalculable);
  state.Values(own_, kCalculable);
  state.Values(after_path_, kCalculable);
  state.Values(after_use_, kCalculable);
  of_token_.VisitLearned(state);
}

size_t RoutePrior::memory_bytes() const {
  const size_t floats = frequency_.size() + after_path_.size() + after_use_.size() + (kFeatures + 2) * experts_;
  return floats * sizeof(float) + own_.size() * sizeof(Weights) + of_token_.memory_bytes();
}

size_t RoutePrior::BytesWithoutTable(const ExpertModelShape& context) {
  const size_t scratch = (kFeatures + 2) * static_cast<size_t>(context.experts_per_layer);
  return (context.experts() + scratch) * sizeof(float) + context.moe_layers.size() * sizeof(Weights) +
         TokenTable::LeastBytes(context.experts());
}

}  // namespace moed
