#include "core/expert/learning/next_use.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/expert/learning/dot_product.h"
#include "core/expert/learning/log_odds.h"

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
constexpr float kFarPairRate = 0.005f;  // of experts of other layers
constexpr float kFirstRate = 0.1f;      // more of both at first, of which
constexpr float kFirstVisits = 100;     // half is left after so many visits
constexpr float kHastyVisits = 200;     // until then weights change so fast that the value before a visit is computed again
constexpr PairTellers kTellers{.most_told = 4096, .least_leading = 3};
constexpr float kTrust = 2;  // occurrences of a token after which what is known of it counts half
constexpr float kUsualRate = 0.02f;
constexpr float kMostVisitsCounted = 2000;   // the frequency forgets what is older
constexpr float kMostVisitsSince = 1 << 24;  // a float does not count further
constexpr float kFrequencyPrior = 4;         // visits
constexpr size_t kPrefillVisits = 64;        // of one prefill step, its last tokens
constexpr float kTableBase = 1;              // occurrences

size_t Distances(const ExpertModelShape& shape) {
  const size_t most = kTellers.MostDistances(shape.moe_layers.size(), static_cast<size_t>(shape.experts_per_layer));
  return std::min(most, PairWeights::Fitting(shape));
}

}  // namespace

NextUse::NextUse(const ExpertModelShape& context)
    : index_(context.moe_layers, context.experts_per_layer, 1),
      experts_(static_cast<size_t>(context.experts_per_layer)),
      top_k_(static_cast<float>(context.top_k)),
      leading_(kTellers.Leading(context, Distances(context))),
      features_(index_.size() * kFeatures),
      frequency_(index_.size()),
      unused_for_(index_.size()),
      usual_value_(index_.size(), kUsualValue),
      unused_value_(index_.size(), kUsualValue),
      learned_(index_.size()),
      published_(index_.size()),
      visits_(static_cast<size_t>(index_.layers())),
      shared_(FirstWeights()),
      own_(static_cast<size_t>(index_.layers())),
      after_use_(context, Distances(context)),
      used_last_(index_.size()),
      led_last_(index_.size()),
      led_last_but_one_(index_.size()),
      others_told_(static_cast<size_t>(index_.layers())),
      after_token_(context, context.table_bytes - after_use_.memory_bytes(), kTableBase),
      used_(experts_),
      weight_(experts_),
      leading_weight_(experts_),
      values_(experts_),
      targets_(experts_),
      errors_(experts_),
      nobody_uses_(experts_),
      token_targets_(experts_),
      after_token_values_(experts_),
      features_before_(kFeatures * experts_) {
  const size_t most_tellers = kTellers.MostDistances(own_.size(), experts_) * experts_;
  tellers_.reserve(most_tellers);
  tellers_before_.reserve(most_tellers);
  const float usual = std::min(1.f, static_cast<float>(context.top_k) / static_cast<float>(context.experts_per_layer));
  std::ranges::fill(frequency_, usual);
  std::ranges::fill(unused_for_, 1 / usual);
  for (int position = 0; position < index_.layers(); ++position) {
    std::ranges::fill(Row(position, kBias), 1.f);
    CountUses(position);
    Score(position, LayerFeatures(position), Layer(learned_, position));
    Publish(position);
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

void NextUse::Learn(const LayerRouting& routing) { ForEachVisit(routing, &NextUse::Visit); }

void NextUse::CountFrequencies(const LayerRouting& routing) { ForEachVisit(routing, &NextUse::CountFrequency); }

void NextUse::ForEachVisit(const LayerRouting& routing, void (NextUse::*visit)(int position)) {
  const int position = index_.Position(routing.layer);
  const std::span<const TokenRouting> all = routing.tokens;
  tokens_.clear();
  for (const TokenRouting& token : all) {
    if (token.phase == Phase::kDecode && HasNumbers(token)) tokens_.push_back(&token);
  }
  if (!tokens_.empty()) return (this->*visit)(position);
  if (std::ranges::count(all, Phase::kDecode, &TokenRouting::phase) > 0) return;
  for (size_t i = all.size() - std::min(all.size(), kPrefillVisits); i < all.size(); ++i) {
    if (!HasNumbers(all[i])) continue;
    tokens_.assign({&all[i]});
    (this->*visit)(position);
  }
}

void NextUse::Publish(int position) {
  const float* learned = &learned_[At(position)];
  float* published = &published_[At(position)];
  for (size_t e = 0; e < experts_; ++e) published[e] = std::max(learned[e], kSmallest);
}

float NextUse::ValueIn(float tokens) { return FastExp(tokens * FastLog(kDiscount)); }

void NextUse::Visit(int position) {
  const std::span<const float> features = LayerFeatures(position);
  std::ranges::copy(features, features_before_.begin());
  // Every other layer was visited once since this one was: what it used last then is what it used at its last visit but one.
  FindTellers(position, led_last_but_one_);
  if (visits_[static_cast<size_t>(position)] < kHastyVisits) Score(position, features, Layer(learned_, position));
  std::swap(tellers_, tellers_before_);
  CountFrequency(position);
  CountUses(position);
  LookUpTokens(position);
  // A prompt's tokens pass one layer after the other, so that what the others used last is of other tokens.
  others_told_[static_cast<size_t>(position)] = tokens_.front()->phase == Phase::kDecode ? 1 : 0;
  FindTellers(position, led_last_);
  Score(position, features, values_);
  for (size_t e = 0; e < experts_; ++e) targets_[e] = used_[e] > 0 ? 1 : kDiscount * values_[e];
  LearnWeights(position);
  LearnTable(position);
  float* usual_value = &usual_value_[At(position)];
  float* unused_value = &unused_value_[At(position)];
  for (size_t e = 0; e < experts_; ++e) {
    usual_value[e] += (targets_[e] - usual_value[e]) * kUsualRate;
    unused_value[e] += (targets_[e] - unused_value[e]) * (kUsualRate * (1 - used_[e]));
  }
  std::ranges::copy(values_, Layer(learned_, position).begin());
}

// What the layer itself used is of its last visit.
void NextUse::FindTellers(int position, const std::vector<float>& of_others) {
  tellers_.clear();
  for (size_t distance = 0; distance < after_use_.distances(); ++distance) {
    const int source = after_use_.Source(distance, position);
    if (source != position && others_told_[static_cast<size_t>(position)] == 0) continue;
    const float* weights = source == position ? &used_last_[At(source)] : &of_others[At(source)];
    for (size_t e = 0; e < experts_; ++e) {
      if (weights[e] == 0) continue;
      tellers_.push_back({distance, e, weights[e]});
      after_use_.Fetch(distance, position, e);
    }
  }
}

void NextUse::MarkUsed() {
  std::ranges::fill(used_, 0.f);
  std::ranges::fill(weight_, 0.f);
  std::ranges::fill(leading_weight_, 0.f);
  const size_t leading = std::max<size_t>(1, leading_ / tokens_.size());
  for (const TokenRouting* token : tokens_) {
    for (const ExpertChoice& choice : token->choices) {
      const auto e = static_cast<size_t>(choice.expert);
      used_[e] = 1;
      weight_[e] = std::max(weight_[e], choice.probability);
    }
    for (const ExpertChoice& choice : token->choices.first(std::min(leading, token->choices.size()))) {
      const auto e = static_cast<size_t>(choice.expert);
      leading_weight_[e] = std::max(leading_weight_[e], choice.probability);
    }
  }
}

// And who was used and how much.
void NextUse::CountFrequency(int position) {
  MarkUsed();
  float& visits = visits_[static_cast<size_t>(position)];
  visits = std::min(visits + 1, kMostVisitsCounted);
  const float rate = 1 / (visits + kFrequencyPrior);
  float* frequency = &frequency_[At(position)];
  for (size_t e = 0; e < experts_; ++e) frequency[e] += (used_[e] - frequency[e]) * rate;
}

// Features of use, from used_ and weight_.
void NextUse::CountUses(int position) {
  const float* frequency = &frequency_[At(position)];
  float* unused_for = &unused_for_[At(position)];
  for (size_t d = 0; d < std::size(kDecays); ++d) {
    float* row = Row(position, static_cast<Feature>(kUse2 + d)).data();
    const float decay = kDecays[d].decay;
    const float step = (1 - decay) * kDecays[d].scale;
    for (size_t e = 0; e < experts_; ++e) row[e] = row[e] * decay + used_[e] * step;
  }
  float* weight = Row(position, kWeight).data();
  float* weight5 = Row(position, kWeight5).data();
  float* used_last = &used_last_[At(position)];
  float* led_last = &led_last_[At(position)];
  std::copy_n(led_last, experts_, &led_last_but_one_[At(position)]);
  for (size_t e = 0; e < experts_; ++e) {
    weight[e] = weight_[e];
    weight5[e] = weight5[e] * kWeightDecay + weight_[e];
    used_last[e] = weight_[e] * top_k_;
    led_last[e] = leading_weight_[e] * top_k_;
  }
  float* odds = Row(position, kFrequency).data();
  float* recency = Row(position, kRecency).data();
  for (size_t e = 0; e < experts_; ++e) {
    unused_for[e] = (unused_for[e] + 1) * (1 - used_[e]);
    odds[e] = LogOdds(frequency[e], kSmallest) * kLogScale;
    recency[e] = FastLog(1 + unused_for[e]) * kLogScale;
  }
}

// How much likelier than usual an expert is after these tokens. Tokens that were never seen before say nothing.
void NextUse::LookUpTokens(int position) {
  float* after = Row(position, kAfterToken).data();
  float* trusted = Row(position, kAfterTrusted).data();
  std::fill_n(after, experts_, 0.f);
  std::fill_n(trusted, experts_, 0.f);
  float occurrences = 0;  // of the token that is known least
  std::ranges::fill(nobody_uses_, 1.f);
  for (const TokenRouting* token : tokens_) {
    const int row = after_token_.Find(token->token);
    const bool known = row != TokenTable::kNoRow && after_token_.occurrences(row) > 0;
    if (!known) continue;
    const auto times = static_cast<float>(after_token_.occurrences(row));
    occurrences = occurrences == 0 ? times : std::min(occurrences, times);
    after_token_.Values(row, position, Unseen(position), after_token_values_);
    for (size_t e = 0; e < experts_; ++e) nobody_uses_[e] *= 1 - after_token_values_[e];
  }
  if (occurrences == 0) return;
  const float trust = occurrences / (occurrences + kTrust);
  const float* usual_value = &usual_value_[At(position)];
  for (size_t e = 0; e < experts_; ++e) {
    after[e] = LogOdds(1 - nobody_uses_[e], kSmallest) - LogOdds(usual_value[e], kSmallest);
    trusted[e] = after[e] * trust;
  }
}

void NextUse::Score(int position, std::span<const float> features, std::span<float> values) const {
  Weights weights = shared_;
  for (size_t f = 0; f < kFeatures; ++f) weights[f] += own_[static_cast<size_t>(position)][f];
  const float* feature = features.data();
  float* value = values.data();
  for (size_t e = 0; e < experts_; ++e) {
    float sum = 0;
    for (size_t f = 0; f < kFeatures; ++f) sum += weights[f] * feature[f * experts_ + e];
    value[e] = sum;
  }
  for (const Teller& teller : tellers_) after_use_.Add(teller.distance, position, teller.expert, teller.weight, values);
  for (size_t e = 0; e < experts_; ++e) value[e] = Logistic(value[e]);
}

void NextUse::LearnWeights(int position) {
  const float visits = visits_[static_cast<size_t>(position)] / kFirstVisits;
  const float at_first = kFirstRate / (1 + visits * visits);
  const float far_rate = kFarPairRate * visits / (1 + visits);
  const float rate = (kLearningRate + at_first) / static_cast<float>(experts_);
  const float* before = &learned_[At(position)];  // of weights as they were then
  for (size_t e = 0; e < experts_; ++e) errors_[e] = targets_[e] - before[e];
  Weights& own = own_[static_cast<size_t>(position)];
  for (size_t f = 0; f < kFeatures; ++f) {
    const float* row = &features_before_[f * experts_];
    const float gradient = DotProduct(errors_, {row, experts_});
    shared_[f] += rate * gradient;
    own[f] += rate * gradient;
  }
  for (const Teller& teller : tellers_before_) {
    const float pair_rate = teller.distance == 0 ? kPairRate + at_first : far_rate;
    after_use_.Learn(teller.distance, position, teller.expert, pair_rate * teller.weight, errors_);
  }
}

// What this visit's tokens show is learned for the tokens before them.
void NextUse::LearnTable(int position) {
  for (const TokenRouting* token : tokens_) {
    if (token->before.value() < 0) continue;
    const int row = after_token_.FindAt(position, token->before);
    if (row == TokenTable::kNoRow) continue;
    for (size_t e = 0; e < experts_; ++e) token_targets_[e] = kDiscount * values_[e];
    for (const ExpertChoice& choice : token->choices) token_targets_[static_cast<size_t>(choice.expert)] = 1;
    after_token_.Learn(row, position, token->choices, token_targets_, Unseen(position));
    after_token_.CountAt(position, row);
  }
}

void NextUse::VisitLearned(LearnedState& state) {
  state.Values(features_, kCalculable);
  state.Values(frequency_, Within{0, 1});
  state.Values(unused_for_, Within{0, kMostVisitsSince});
  state.Values(usual_value_, Within{0, 1});
  state.Values(unused_value_, Within{0, 1});
  state.Values(learned_, Within{0, 1});
  state.Values(visits_, Within{0, kMostVisitsCounted});
  state.Values(shared_, kCalculable);
  state.Values(own_, kCalculable);
  after_use_.VisitLearned(state);
  state.Values(used_last_, kCalculable);
  state.Values(led_last_, kCalculable);
  state.Values(led_last_but_one_, kCalculable);
  state.Values(others_told_, Within{0, 1});
  after_token_.VisitLearned(state);
  for (int position = 0; position < index_.layers(); ++position) Publish(position);
}

size_t NextUse::FixedBytes(size_t layers, size_t experts) {
  constexpr size_t kOfAnExpert = kFeatures + 9, kOfAVisit = kFeatures + 9;
  return (layers * experts * kOfAnExpert + experts * kOfAVisit) * sizeof(float) + layers * (sizeof(Weights) + 2 * sizeof(float)) +
         2 * kTellers.MostDistances(layers, experts) * experts * sizeof(Teller);
}

size_t NextUse::BytesWithoutTable(const ExpertModelShape& shape) {
  return FixedBytes(shape.moe_layers.size(), static_cast<size_t>(shape.experts_per_layer)) + TokenTable::LeastBytes(shape);
}

size_t NextUse::MostTableBytes(const ExpertModelShape& shape) {
  const size_t distances = kTellers.MostDistances(shape.moe_layers.size(), static_cast<size_t>(shape.experts_per_layer));
  return std::max(PairWeights::TableBytesOf(shape, distances),
                  distances * PairWeights::Bytes(shape) + TokenTable::MostBytes(shape));
}

}  // namespace moed
