#include "core/expert/predictors/route_prior.h"

#include <algorithm>
#include <numeric>

#include "core/expert/learning/dot_product.h"
#include "core/expert/learning/log_odds.h"

namespace moed {
namespace {

constexpr float kUseRate = 0.05f;        // a token
constexpr float kUseScale = 2;           // of the feature
constexpr float kFrequencyRate = 0.02f;  // a token
constexpr float kFrequencyScale = 0.5f;
constexpr float kLearningRate = 0.02f;  // of the gradient's mean over a layer's experts, for each of the two sets of weights
constexpr float kPairRate = 0.02f;
constexpr float kFarPairRate = 0.008f;  // of experts of layers passed before the last one
constexpr PairTellers kTellers{.most_told = 2048, .least_leading = 4};
constexpr float kTrust = 2;       // occurrences of a token after which what is known of it counts half
constexpr float kTableBase = 1;   // occurrences
constexpr float kLeast = 0.002f;  // of probabilities whose log odds are taken
constexpr ExpertChoice kNobody{.expert = -1};
constexpr std::array<float, 7> kFirstWeights = {0, 0.1f, 1, 1.4f, 0.5f, 0.4f, 0};

size_t MostReach(const ExpertModelShape& context) {
  return kTellers.MostDistances(context.moe_layers.size() - 1, static_cast<size_t>(context.experts_per_layer));
}

// One table is left for the experts at the token before.
std::vector<size_t> Reach(const ExpertModelShape& context) {
  const size_t tables = PairWeights::Fitting(context);
  const size_t most = MostReach(context);
  std::vector<size_t> distances(std::min(most, tables > 1 ? tables - 1 : tables));
  std::iota(distances.begin(), distances.end(), 1);
  return distances;
}

}  // namespace

RoutePrior::RoutePrior(const ExpertModelShape& context)
    : index_(context.moe_layers, context.experts_per_layer, 1),
      experts_(static_cast<size_t>(context.experts_per_layer)),
      top_k_(static_cast<size_t>(std::min(context.top_k, context.experts_per_layer))),
      frequency_(index_.size(), static_cast<float>(top_k_) / static_cast<float>(experts_)),
      odds_(index_.size(), LogOdds(static_cast<float>(top_k_) / static_cast<float>(experts_), kLeast)),
      shared_(kFirstWeights),
      own_(static_cast<size_t>(index_.layers())),
      after_path_(context, Reach(context)),
      after_use_(context, PairWeights::Fitting(context) >= 2 ? size_t{1} : 0),
      most_leading_(kTellers.Leading(context, Reach(context).size())),
      leading_(most_leading_),
      of_token_(context, context.table_bytes - after_path_.memory_bytes() - after_use_.memory_bytes(), kTableBase),
      zeros_(experts_),
      ones_(experts_, 1.f),
      likelier_(experts_),
      of_token_values_(experts_),
      used_(experts_),
      error_(experts_) {}

RoutePrior::Sequence RoutePrior::Start() const {
  Sequence sequence;
  sequence.last.assign(static_cast<size_t>(index_.layers()) * top_k_, kNobody);
  sequence.use = frequency_;
  sequence.logits.resize(index_.size());
  sequence.early.resize(index_.size());
  sequence.kept.resize(static_cast<size_t>(index_.layers()));
  return sequence;
}

int RoutePrior::occurrences(const Sequence& sequence) const {
  const int row = of_token_.Find(sequence.token);
  return row == TokenTable::kNoRow ? 0 : of_token_.occurrences(row);
}

// Fills likelier_, zeros for a token that was never seen; how often it was.
float RoutePrior::LookUpToken(int position, const Sequence& sequence) {
  const int times = occurrences(sequence);
  if (times == 0) {
    std::ranges::fill(likelier_, 0.f);
    return 0;
  }
  of_token_.Values(of_token_.Find(sequence.token), position, Unseen(position), of_token_values_);
  const float* odds = &odds_[At(position)];
  for (size_t e = 0; e < experts_; ++e) likelier_[e] = LogOdds(of_token_values_[e], kLeast) - odds[e];
  return static_cast<float>(times);
}

bool RoutePrior::Score(Sequence& sequence, int first) {
  if (sequence.scored) return false;
  sequence.scored = true;
  ++sequence.tokens;
  std::ranges::fill(sequence.kept, 0);
  for (int position = first; position < index_.layers(); ++position) {
    const float times = LookUpToken(position, sequence);
    Weights weights = shared_;
    for (size_t f = 0; f < kFeatures; ++f) weights[f] += own_[static_cast<size_t>(position)][f];
    const float bias = weights[kBias] + (times == 0 ? weights[kNewToken] : 0);
    const float of_use = weights[kUse] * kUseScale, of_frequency = weights[kFrequency] * kFrequencyScale;
    const float of_token = weights[kOfToken] + weights[kOfTokenTrusted] * times / (times + kTrust);
    const float* use = &sequence.use[At(position)];
    const float* odds = &odds_[At(position)];
    const std::span<float> logits = Layer(sequence.logits, position);
    float* sum = logits.data();
    for (size_t e = 0; e < experts_; ++e) sum[e] = bias + of_use * use[e] + of_frequency * odds[e] + of_token * likelier_[e];
    for (const ExpertChoice& last : LastOf(sequence.last, position)) {
      if (last.expert < 0) continue;
      logits[static_cast<size_t>(last.expert)] += weights[kWeight] * last.probability;
      after_use_.Add(0, position, static_cast<size_t>(last.expert), last.probability, logits);
    }
    const int ahead = position - first + 1;
    for (int distance = ahead; distance <= std::min(reach(), position); ++distance) Tell(position, distance, sequence);
    Keep(position, ahead, sequence);
  }
  return true;
}

// The layer so far before this one was routed.
void RoutePrior::Tell(int position, int distance, Sequence& sequence) const {
  const std::span<float> logits = Layer(sequence.logits, position);
  for (const ExpertChoice& teller : Tellers(sequence, position, distance)) {
    if (teller.expert < 0) continue;
    after_path_.Add(static_cast<size_t>(distance - 1), position, static_cast<size_t>(teller.expert), teller.probability, logits);
  }
}

// This layer was routed: tells those that hear it.
void RoutePrior::Pass(int position, Sequence& sequence) const {
  for (int distance = 1; distance <= std::min(reach(), index_.layers() - 1 - position); ++distance) {
    Tell(position + distance, distance, sequence);
    Keep(position + distance, distance, sequence);
  }
}

// Of all kinds of distances beyond the next layer one after the other, from token to token.
void RoutePrior::Keep(int position, int distance, Sequence& sequence) const {
  const auto kinds = static_cast<size_t>(FarthestKind() - 1);
  const size_t kind = 2 + (sequence.tokens + static_cast<size_t>(position)) % kinds;
  if (distance < 2 || Kind(distance) != kind) return;
  std::ranges::copy(Layer(sequence.logits, position), Layer(sequence.early, position).begin());
  sequence.kept[static_cast<size_t>(position)] = static_cast<uint32_t>(kind);
}

void RoutePrior::ScoreNext(const Sequence& sequence, int position, std::span<float> logits) const {
  std::copy_n(&sequence.logits[At(position)], experts_, logits.begin());
}

void RoutePrior::Learn(int position, const TokenRouting& token, Sequence& sequence) {
  MarkUsed(token);
  if (sequence.scored && position > 0) LearnWeights(position, sequence);
  sequence.token = token.token;
  if (position == 0 || position + 1 == index_.layers()) sequence.scored = false;
  LearnUsed(position, token, sequence);
  const std::span<ExpertChoice> last = LastOf(sequence.last, position);
  std::ranges::fill(last, kNobody);
  for (size_t slot = 0; slot < std::min(last.size(), token.choices.size()); ++slot) {
    last[slot] = {token.choices[slot].expert, token.choices[slot].probability * static_cast<float>(top_k_)};
  }
  if (sequence.scored) Pass(position, sequence);
}

void RoutePrior::MarkUsed(const TokenRouting& token) {
  std::ranges::fill(used_, 0.f);
  for (const ExpertChoice& choice : token.choices) used_[static_cast<size_t>(choice.expert)] = 1;
}

void RoutePrior::LearnTables(int position, const TokenRouting& token, Sequence& sequence) {
  MarkUsed(token);
  LearnUsed(position, token, sequence);
}

void RoutePrior::LearnUsed(int position, const TokenRouting& token, Sequence& sequence) {
  const int row = of_token_.FindAt(position, token.token);
  if (row != TokenTable::kNoRow) {
    of_token_.Learn(row, position, token.choices, used_, Unseen(position));
    of_token_.CountAt(position, row);
  }
  LearnFrequency(position);
  float* use = &sequence.use[At(position)];
  for (size_t e = 0; e < experts_; ++e) use[e] += (used_[e] - use[e]) * kUseRate;
}

void RoutePrior::LearnFrequency(int position) {
  float* frequency = &frequency_[At(position)];
  float* odds = &odds_[At(position)];
  for (size_t e = 0; e < experts_; ++e) {
    frequency[e] += (used_[e] - frequency[e]) * kFrequencyRate;
    odds[e] = LogOdds(frequency[e], kLeast);
  }
}

// From what was said of this layer, all before it known; used_ is the truth.
void RoutePrior::LearnWeights(int position, const Sequence& sequence) {
  ScoreNext(sequence, position, error_);
  for (size_t e = 0; e < experts_; ++e) error_[e] = used_[e] - Logistic(error_[e]);
  const float times = LookUpToken(position, sequence);
  Weights gradient{};
  gradient[kBias] = DotProduct(error_, ones_);
  gradient[kUse] = DotProduct(error_, std::span(sequence.use).subspan(At(position), experts_)) * kUseScale;
  gradient[kFrequency] = DotProduct(error_, Layer(odds_, position)) * kFrequencyScale;
  gradient[kOfToken] = DotProduct(error_, likelier_);
  gradient[kOfTokenTrusted] = gradient[kOfToken] * times / (times + kTrust);
  gradient[kNewToken] = times == 0 ? gradient[kBias] : 0;
  for (const ExpertChoice& last : LastOf(sequence.last, position)) {
    if (last.expert < 0) continue;
    gradient[kWeight] += error_[static_cast<size_t>(last.expert)] * last.probability;
    after_use_.Learn(0, position, static_cast<size_t>(last.expert), kPairRate * last.probability, error_);
  }
  for (int distance = 1; distance <= std::min(reach(), position); ++distance) {
    const float rate = distance == 1 ? kPairRate : kFarPairRate;
    for (const ExpertChoice& teller : Tellers(sequence, position, distance)) {
      if (teller.expert < 0) continue;
      after_path_.Learn(static_cast<size_t>(distance - 1), position, static_cast<size_t>(teller.expert),
                        rate * teller.probability, error_);
    }
  }
  Weights& own = own_[static_cast<size_t>(position)];
  for (size_t f = 0; f < kFeatures; ++f) {
    const float step = gradient[f] * kLearningRate / static_cast<float>(experts_);
    shared_[f] += step;
    own[f] += step;
  }
}

void RoutePrior::VisitLearned(LearnedState& state) {
  state.Values(frequency_, Within{0, 1});
  state.Values(shared_, kCalculable);
  state.Values(own_, kCalculable);
  after_path_.VisitLearned(state);
  after_use_.VisitLearned(state);
  of_token_.VisitLearned(state);
  for (size_t i = 0; i < odds_.size(); ++i) odds_[i] = LogOdds(frequency_[i], kLeast);
}

size_t RoutePrior::memory_bytes() const {
  return FixedBytes(own_.size(), experts_) + after_path_.memory_bytes() + after_use_.memory_bytes() + of_token_.memory_bytes();
}

size_t RoutePrior::FixedBytes(size_t layers, size_t experts) {
  return (2 * layers * experts + kScratch * experts) * sizeof(float) + layers * sizeof(Weights);
}

size_t RoutePrior::BytesWithoutTable(const ExpertModelShape& context) {
  return FixedBytes(context.moe_layers.size(), static_cast<size_t>(context.experts_per_layer)) + TokenTable::LeastBytes(context);
}

size_t RoutePrior::MostTableBytes(const ExpertModelShape& context) {
  const size_t tables = MostReach(context) + 1;
  return std::max(PairWeights::TableBytesOf(context, tables),
                  tables * PairWeights::Bytes(context) + TokenTable::MostBytes(context));
}

}  // namespace moed
