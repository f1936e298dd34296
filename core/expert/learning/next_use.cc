#include "core/expert/learning/next_use.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "core/expert/learning/logistic.h"

namespace moed {
namespace {

constexpr float kDiscount = 0.75f;
constexpr float kSmallest = 1e-4f;  // of values, so that their logarithms stay finite
constexpr struct {
  float decay;  // a visit
  float scale;
} kDecays[] = {{0.5f, 1}, {0.8f, 1}, {0.95f, 2}, {0.99f, 2}};
constexpr float kLogScale = 0.5f;
constexpr float kUsualValue = 0.4f;
constexpr float kWeightDecay = 0.8f;    // a visit
constexpr float kLearningRate = 0.02f;  // of the gradient's mean over a layer's experts, for each of the two sets of weights
constexpr float kPairRate = 0.02f;
constexpr float kFirstRate = 0.1f;   // more of both at first, of which
constexpr float kFirstVisits = 100;  // half is left after so many visits
constexpr size_t kPairsShare = 2;    // pairs may take one of so many parts of the table's bytes
constexpr float kTrust = 2;          // occurrences of a token after which what is known of it counts half
constexpr float kUsualRate = 0.02f;
constexpr float kMostVisitsCounted = 2000;   // the frequency forgets what is older
constexpr float kMostVisitsSince = 1 << 24;  // a float does not count further
constexpr float kFrequencyPrior = 4;         // visits
constexpr size_t kPrefillVisits = 64;        // of one prefill step, its last tokens
constexpr size_t kTableRows = 8192;
constexpr float kTableBase = 1;  // occurrences

size_t PairBytes(const ExpertModelShape& context) {
  const auto experts = static_cast<size_t>(context.experts_per_layer);
  const size_t bytes = context.moe_layers.size() * experts * experts * sizeof(float);
  return bytes <= context.table_bytes / kPairsShare ? bytes : 0;
}
float LogOdds(float p) {
  p = std::clamp(p, kSmallest, 1 - kSmallest);
  return std::log(p / (1 - p));
}
float TokensOf(float value) { return std::log(std::max(value, kSmallest)) / std::log(kDiscount); }

}  // namespace

NextUse::NextUse(const ExpertModelShape& context)
    : index_(context.moe_layers, context.experts_per_layer, 1),
      experts_(static_cast<size_t>(context.experts_per_layer)),
      top_k_(static_cast<float>(context.top_k)),
      features_(index_.size() * kFeatures),
      frequency_(index_.size()),
      unused_for_(index_.size()),
      usual_value_(index_.size(), kUsualValue),
      tokens_away_(index_.size()),
      visits_(static_cast<size_t>(index_.layers())),
      shared_(FirstWeights()),
      own_(static_cast<size_t>(index_.layers())),
      pairs_(PairBytes(context) / sizeof(float)),
      used_last_(index_.size()),
      after_token_(index_.size(), context.table_bytes - PairBytes(context), kTableRows, kTableBase),
      used_(experts_),
      weight_(experts_),
      values_(experts_),
      targets_(experts_),
      nobody_uses_(experts_),
      token_targets_(experts_),
      features_before_(kFeatures * experts_),
      used_before_(experts_),
      values_before_(experts_) {
  const float usual = std::min(1.f, static_cast<float>(context.top_k) / static_cast<float>(context.experts_per_layer));
  std::ranges::fill(frequency_, usual);
  std::ranges::fill(unused_for_, 1 / usual);
  for (int position = 0; position < index_.layers(); ++position) {
    std::ranges::fill(Row(position, kBias), 1.f);
    CountUses(position);
    Score(position, LayerFeatures(position), Layer(used_last_, position), Layer(tokens_away_, position));
    for (float& value : Layer(tokens_away_, position)) value = TokensOf(value);
  }
}

// Learned from thereon. About the mean of what was learned from the routing of two models (those of docs/policies.md, its parts
// to learn from).
NextUse::Weights NextUse::FirstWeights() {
  Weights weights{};
  weights[kBias] = -0.2f;
  weights[kUse2] = -0.2f;
  weights[kUse5] = -0.1f;
  weights[kUse20] = 1;
  weights[kUse100] = 0.9f;
  weights[kFrequency] = 0.7f;
  weights[kRecency] = -0.4f;
  weights[kWeight] = 0.3f;
  weights[kWeight5] = 0.2f;
  weights[kAfterToken] = 0.35f;
  weights[kAfterTrusted] = 0.3f;
  return weights;
}

void NextUse::OnSequenceEnd(SequenceId sequence) { sequences_.erase(sequence); }

void NextUse::OnToken(SequenceId id, TokenId token) {
  step_ += !std::exchange(step_open_, true);
  Sequence& sequence = sequences_[id];
  if (sequence.step != step_) sequence.before = sequence.last;
  sequence.step = step_;
  sequence.last = token;
}

void NextUse::OnRouted(const LayerRouting& routing) {
  step_open_ = false;
  const int position = index_.Position(routing.layer);
  const std::span<const TokenRouting> all = routing.tokens;
  tokens_.clear();
  for (const TokenRouting& token : all) {
    if (token.phase == Phase::kDecode && HasNumbers(token)) tokens_.push_back({&token, sequences_[token.sequence].before});
  }
  if (!tokens_.empty()) return Visit(position);
  if (std::ranges::count(all, Phase::kDecode, &TokenRouting::phase) > 0) return;
  for (size_t i = all.size() - std::min(all.size(), kPrefillVisits); i < all.size(); ++i) {
    if (!HasNumbers(all[i])) continue;
    const bool continues = i > 0 && all[i - 1].sequence == all[i].sequence;
    tokens_.assign({{&all[i], continues ? all[i - 1].token : sequences_[all[i].sequence].before}});
    Visit(position);
  }
}

void NextUse::Visit(int position) {
  const std::span<const float> features = LayerFeatures(position);
  const std::span<const float> used_last = Layer(used_last_, position);
  std::ranges::copy(features, features_before_.begin());
  std::ranges::copy(used_last, used_before_.begin());
  Score(position, features, used_last, values_before_);
  MarkUsed();
  visits_[static_cast<size_t>(position)] = std::min(visits_[static_cast<size_t>(position)] + 1, kMostVisitsCounted);
  CountUses(position);
  LookUpTokens(position);
  Score(position, features, used_last, values_);
  for (size_t e = 0; e < experts_; ++e) targets_[e] = used_[e] > 0 ? 1 : kDiscount * values_[e];
  LearnWeights(position);
  LearnTable(position);
  const std::span<float> usual_value = Layer(usual_value_, position);
  const std::span<float> tokens_away = Layer(tokens_away_, position);
  for (size_t e = 0; e < experts_; ++e) {
    usual_value[e] += (targets_[e] - usual_value[e]) * kUsualRate;
    tokens_away[e] = TokensOf(values_[e]);
  }
}

void NextUse::MarkUsed() {
  std::ranges::fill(used_, 0.f);
  std::ranges::fill(weight_, 0.f);
  for (const VisitToken& token : tokens_) {
    for (const ExpertChoice& choice : token.routing->choices) {
      const auto e = static_cast<size_t>(choice.expert);
      used_[e] = 1;
      weight_[e] = std::max(weight_[e], choice.probability);
    }
  }
}

// Features of use, from used_ and weight_.
void NextUse::CountUses(int position) {
  const float rate = 1 / (visits_[static_cast<size_t>(position)] + kFrequencyPrior);
  const std::span<float> frequency = Layer(frequency_, position);
  const std::span<float> unused_for = Layer(unused_for_, position);
  for (size_t d = 0; d < std::size(kDecays); ++d) {
    const std::span<float> row = Row(position, static_cast<Feature>(kUse2 + d));
    const float decay = kDecays[d].decay;
    const float step = (1 - decay) * kDecays[d].scale;
    for (size_t e = 0; e < experts_; ++e) row[e] = row[e] * decay + used_[e] * step;
  }
  const std::span<float> weight = Row(position, kWeight);
  const std::span<float> weight5 = Row(position, kWeight5);
  const std::span<float> used_last = Layer(used_last_, position);
  for (size_t e = 0; e < experts_; ++e) {
    weight[e] = weight_[e];
    weight5[e] = weight5[e] * kWeightDecay + weight_[e];
    used_last[e] = weight_[e] * top_k_;
  }
  const std::span<float> odds = Row(position, kFrequency);
  const std::span<float> recency = Row(position, kRecency);
  for (size_t e = 0; e < experts_; ++e) {
    frequency[e] += (used_[e] - frequency[e]) * rate;
    unused_for[e] = used_[e] > 0 ? 0 : unused_for[e] + 1;
    odds[e] = LogOdds(frequency[e]) * kLogScale;
    recency[e] = std::log1p(unused_for[e]) * kLogScale;
  }
}

// How much likelier than usual an expert is after these tokens. Tokens that were never seen before say nothing.
void NextUse::LookUpTokens(int position) {
  const std::span<float> after = Row(position, kAfterToken);
  const std::span<float> trusted = Row(position, kAfterTrusted);
  std::ranges::fill(after, 0.f);
  std::ranges::fill(trusted, 0.f);
  const std::span<const float> usual_value = Layer(usual_value_, position);
  float occurrences = 0;  // of the token that is known least
  std::ranges::fill(nobody_uses_, 1.f);
  for (const VisitToken& token : tokens_) {
    const int row = after_token_.Find(token.routing->token);
    const bool known = row != TokenTable::kNoRow && after_token_.occurrences(row) > 0;
    if (!known) continue;
    const auto times = static_cast<float>(after_token_.occurrences(row));
    occurrences = occurrences == 0 ? times : std::min(occurrences, times);
    const std::span<const uint8_t> values = after_token_.Values(row, At(position), experts_);
    for (size_t e = 0; e < experts_; ++e) nobody_uses_[e] *= 1 - static_cast<float>(values[e]) * (1 / 255.f);
  }
  if (occurrences == 0) return;
  const float trust = occurrences / (occurrences + kTrust);
  for (size_t e = 0; e < experts_; ++e) {
    after[e] = LogOdds(1 - nobody_uses_[e]) - LogOdds(usual_value[e]);
    trusted[e] = after[e] * trust;
  }
}

void NextUse::Score(int position, std::span<const float> features, std::span<const float> used, std::span<float> values) const {
  const Weights& own = own_[static_cast<size_t>(position)];
  std::ranges::fill(values, 0.f);
  for (size_t f = 0; f < kFeatures; ++f) {
    const float weight = shared_[f] + own[f];
    const float* row = &features[f * experts_];
    for (size_t e = 0; e < experts_; ++e) values[e] += weight * row[e];
  }
  for (size_t from = 0; from < (pairs_.empty() ? 0 : experts_); ++from) {
    if (used[from] == 0) continue;
    const float* row = &pairs_[(At(position) + from) * experts_];
    for (size_t e = 0; e < experts_; ++e) values[e] += used[from] * row[e];
  }
  for (float& value : values) value = Logistic(value);
}

void NextUse::LearnWeights(int position) {
  const float visits = visits_[static_cast<size_t>(position)] / kFirstVisits;
  const float at_first = kFirstRate / (1 + visits * visits);
  const float rate = (kLearningRate + at_first) / static_cast<float>(experts_);
  Weights& own = own_[static_cast<size_t>(position)];
  for (size_t f = 0; f < kFeatures; ++f) {
    const float* row = &features_before_[f * experts_];
    float gradient = 0;
    for (size_t e = 0; e < experts_; ++e) gradient += (targets_[e] - values_before_[e]) * row[e];
    shared_[f] += rate * gradient;
    own[f] += rate * gradient;
  }
  for (size_t from = 0; from < (pairs_.empty() ? 0 : experts_); ++from) {
    if (used_before_[from] == 0) continue;
    const float step = (kPairRate + at_first) * used_before_[from];
    float* row = &pairs_[(At(position) + from) * experts_];
    for (size_t e = 0; e < experts_; ++e) row[e] += step * (targets_[e] - values_before_[e]);
  }
}

// What this visit's tokens show is learned for the tokens before them.
void NextUse::LearnTable(int position) {
  const bool first = position == 0, last = position + 1 == index_.layers();
  for (const VisitToken& token : tokens_) {
    if (token.before.value() < 0) continue;
    const int row = first ? after_token_.FindOrAdd(token.before) : after_token_.Find(token.before);
    if (row == TokenTable::kNoRow) continue;
    for (size_t e = 0; e < experts_; ++e) token_targets_[e] = kDiscount * values_[e];
    for (const ExpertChoice& choice : token.routing->choices) token_targets_[static_cast<size_t>(choice.expert)] = 1;
    after_token_.Learn(row, At(position), token_targets_, Layer(usual_value_, position));
    if (last) after_token_.CountOccurrence(row);
  }
}

void NextUse::VisitLearned(LearnedState& state) {
  state.Values(features_, kCalculable);
  state.Values(frequency_, Within{0, 1});
  state.Values(unused_for_, Within{0, kMostVisitsSince});
  state.Values(usual_value_, Within{0, 1});
  state.Values(tokens_away_, kCalculable);
  state.Values(visits_, Within{0, kMostVisitsCounted});
  state.Values(shared_, kCalculable);
  state.Values(own_, kCalculable);
  state.Values(pairs_, kCalculable);
  state.Values(used_last_, kCalculable);
  after_token_.VisitLearned(state);
}

size_t NextUse::memory_bytes() const {
  const size_t per_expert = kFeatures + 5;
  return index_.size() * per_expert * sizeof(float) + own_.size() * (sizeof(Weights) + sizeof(float)) +
         (experts_ * (kFeatures + 8) + pairs_.size()) * sizeof(float) + after_token_.memory_bytes();
}

size_t NextUse::BytesWithoutTable(const ExpertModelShape& context) {
  const auto experts = static_cast<size_t>(context.experts_per_layer);
  const size_t per_expert = kFeatures + 5;
  return context.experts() * per_expert * sizeof(float) + context.moe_layers.size() * (sizeof(Weights) + sizeof(float)) +
         experts * (kFeatures + 8) * sizeof(float) + TokenTable::LeastBytes(context.experts());
}

}  // namespace moed
