#include "core/expert/predictors/learned.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/check.h"
#include "core/expert/expert_index.h"
#include "core/expert/learning/dot_product.h"
#include "core/expert/learning/learned_state.h"
#include "core/expert/learning/log_odds.h"
#include "core/expert/predictors/route_prior.h"

namespace moed {
namespace {

constexpr float kLearningRate = 0.1f;  // of the gradient's mean over a layer's experts
constexpr float kFarRate = 0.01f;
constexpr float kSmallest = 1e-4f;   // of probabilities whose log odds are taken
constexpr float kLeastGate = 1e-4f;  // gate probabilities below are alike
// Less likely guesses cost more bytes than they save time, even where the disk would be idle.
constexpr float kLeastProbability = 0.45f;
// More is asked of a guess for each layer that it could still wait: the path to it will tell more, and nearer guesses need the
// disk.
constexpr float kPerLayer = 0.1f;
static_assert(kLeastProbability + kPerLayer * RoutePrior::kFarthest >= 1);  // layers beyond cannot be asked of
constexpr size_t kPrefillTokens = 16;                                       // learned from in one prefill step, its last ones

// The next layer's gate is asked twice: with this layer's input, and with a preview of its own once this layer's experts are
// computed. Each has weights of its own.
enum Look : size_t { kOfGateInput, kOfPreview, kLooks };
// What it says, beside the prior.
enum Feature { kBias, kGateMargin, kGateChooses, kPrior, kFeatures };
using Weights = std::array<float, kFeatures>;
// One set for each degree of acquaintance with the token: never seen, a few times, often.
constexpr int kSets = 3;
constexpr std::array<Weights, kSets> kFirstWeights = {{{0.f, 0.9f, 1.4f, 0.3f}, {0, 0.9f, 1.4f, 0.5f}, {0, 0.9f, 1.4f, 0.7f}}};
constexpr int kOften = 4;  // occurrences

class LearnedPredictor final : public ExpertPredictor {
 public:
  explicit LearnedPredictor(const PartContext& context)
      : index_(context.model.moe_layers, context.model.experts_per_layer, 1),
        experts_(static_cast<size_t>(context.model.experts_per_layer)),
        top_k_(static_cast<size_t>(std::min(context.model.top_k, context.model.experts_per_layer))),
        hidden_(static_cast<size_t>(context.hidden)),
        gate_(context.gate),
        prior_(context.model),
        used_(experts_),
        error_(experts_),
        ones_(experts_, 1.f),
        gates_(experts_),
        ordered_(experts_) {
    MOED_CHECK(top_k_ > 0 && (gate_ == nullptr || hidden_ > 0));
  }

  bool paced() const override { return true; }

  void OnSequenceStart(SequenceId id) override {
    Sequence& sequence = sequences_[id];
    sequence.prior = prior_.Start();
    sequence.hidden.resize(hidden_);
    for (Said& said : sequence.said) {
      said.features.resize(kFeatures * experts_);
      said.probabilities.resize(experts_);
    }
  }
  void OnSequenceEnd(SequenceId sequence) override { sequences_.erase(sequence); }
  void OnToken(SequenceId sequence, TokenId) override { Find(sequence).routed = kNothing; }
  void OnGateInput(SequenceId id, LayerId layer, std::span<const float> hidden) override {
    Sequence& sequence = Find(id);
    MOED_CHECK(hidden.size() == hidden_);
    sequence.layer = layer;
    sequence.look = kOfGateInput;
    std::ranges::copy(hidden, sequence.hidden.begin());
  }
  bool wants_previews() const override { return gate_ != nullptr; }
  void OnGatePreview(SequenceId id, LayerId next, std::span<const float> hidden) override {
    Sequence& sequence = Find(id);
    MOED_CHECK(hidden.size() == hidden_);
    const int position = index_.Position(next);
    if (position == 0 || sequence.layer != index_.Layer(position - 1)) return;
    sequence.look = kOfPreview;
    std::ranges::copy(hidden, sequence.hidden.begin());
  }

  void OnRouted(const LayerRouting& routing) override {
    const int position = index_.Position(routing.layer);
    const std::span<const TokenRouting> tokens = routing.tokens;
    const size_t prefill = static_cast<size_t>(std::ranges::count(tokens, Phase::kPrefill, &TokenRouting::phase));
    prior_.ShareAmong(tokens.size() - prefill);
    size_t skipped = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool skip = tokens[i].phase == Phase::kPrefill && skipped + kPrefillTokens < prefill;
      skipped += skip;
      const bool last = i + 1 == tokens.size() || tokens[i + 1].sequence != tokens[i].sequence;
      if (!skip) Learn(position, tokens[i], last);
    }
  }

  void Predict(SequenceId id, LayerId from, std::vector<Guess>& best_first) override {
    Sequence& sequence = Find(id);
    const int next = index_.Position(from) + 1;
    if (!sequence.decodes || sequence.routed != next - 1 || next == index_.layers()) return;
    prior_.Score(sequence.prior, next);
    const size_t first = best_first.size();
    GuessNext(next, sequence, best_first);
    GuessFar(next, sequence, best_first);
    std::sort(best_first.begin() + static_cast<std::ptrdiff_t>(first), best_first.end(), [](const Guess& a, const Guess& b) {
      return a.probability != b.probability ? a.probability > b.probability : a.key < b.key;
    });
  }

  void VisitLearned(LearnedState& state) override {
    for (std::array<Weights, kSets>& weights : weights_) state.Values(weights, kCalculable);
    state.Values(far_, [](const Trust& far) { return kCalculable(far.bias) && kCalculable(far.scale); });
    prior_.VisitLearned(state);
  }
  size_t memory_bytes() const override {
    const size_t a_sequence = OwnSequenceBytes(hidden_, experts_) + prior_.sequence_bytes();
    return sequences_.size() * a_sequence + kScratch * experts_ * sizeof(float) + prior_.memory_bytes();
  }
  static PartMemory Memory(const PartContext& context) {
    const auto experts = static_cast<size_t>(context.model.experts_per_layer);
    return {.fixed_bytes = kScratch * experts * sizeof(float) + RoutePrior::BytesWithoutTable(context.model),
            .sequence_bytes =
                OwnSequenceBytes(static_cast<size_t>(context.hidden), experts) + RoutePrior::SequenceBytes(context.model),
            .tables = 1,
            .most_table_bytes = RoutePrior::MostTableBytes(context.model)};
  }

 private:
  static constexpr int kNothing = -1;

  // What the prior's log odds of a layer beyond the next one are worth.
  struct Trust {
    float bias = 0;
    float scale = 1;
  };
  // With a look, of a layer.
  struct Said {
    int layer = kNothing;  // its position
    int set = 0;
    std::vector<float> features;       // (kFeatures, experts)
    std::vector<float> probabilities;  // (experts)
  };
  struct Sequence {
    RoutePrior::Sequence prior;
    std::optional<LayerId> layer;  // where `hidden` was seen, or behind which
    Look look = kOfGateInput;
    std::vector<float> hidden;
    bool decodes = false;
    int routed = kNothing;  // layer position, of this token
    std::array<Said, kLooks> said;
  };

  static constexpr size_t kScratch = 5;  // arrays (experts)

  static size_t OwnSequenceBytes(size_t hidden, size_t experts) {
    return sizeof(Sequence) + (hidden + kLooks * (kFeatures + 1) * experts) * sizeof(float);
  }
  Sequence& Find(SequenceId sequence) {
    const auto found = sequences_.find(sequence);
    MOED_CHECK(found != sequences_.end());
    return found->second;
  }

  void GuessNext(int position, Sequence& sequence, std::vector<Guess>& guesses) {
    Said& said = sequence.said[sequence.look];
    std::vector<float>& p = said.probabilities;
    prior_.ScoreNext(sequence.prior, position, p);
    if (gate_ != nullptr && sequence.layer == index_.Layer(position - 1)) {
      gate_(index_.Layer(position), sequence.hidden, gates_);
      // An input that is no number says nothing: the prior guesses alone.
      if (std::ranges::all_of(gates_, [](float gate) { return std::isfinite(gate); })) {
        FillFeatures(sequence.prior, said);
        Score(weights_[sequence.look], said);
        said.layer = position;
      }
    }
    for (float& value : p) value = Logistic(value);
    for (size_t e = 0; e < experts_; ++e) {
      if (p[e] >= kLeastProbability) Add(position, e, p[e], 1, guesses);
    }
  }

  void GuessFar(int next, const Sequence& sequence, std::vector<Guess>& guesses) const {
    const int end = std::min(next + RoutePrior::kFarthest, index_.layers());
    for (int position = next + 1; position < end; ++position) {
      const int distance = position - next + 1;
      const float asked = kPerLayer * static_cast<float>(distance - 1);
      const float least = LogOdds(kLeastProbability + asked, kSmallest);
      const Trust trust = far_[prior_.Kind(distance)];
      const float* logits = &sequence.prior.logits[static_cast<size_t>(position) * experts_];
      for (size_t e = 0; e < experts_; ++e) {
        const float odds = trust.bias + trust.scale * logits[e];
        if (odds >= least) Add(position, e, Logistic(odds) - asked, distance, guesses);
      }
    }
  }
  void Add(int position, size_t expert, float probability, int distance, std::vector<Guess>& guesses) const {
    guesses.push_back({{index_.Layer(position), static_cast<int32_t>(expert)}, probability, distance});
  }

  // What was said is of the last token that the sequence has in the step: the gate's input was that one's.
  void Learn(int position, const TokenRouting& token, bool last) {
    Sequence& sequence = Find(token.sequence);
    if (!HasNumbers(token)) {
      sequence.routed = kNothing;
      Forget(sequence.said);
      sequence.prior.scored = false;
      return;
    }
    if (!last) return prior_.LearnTables(position, token, sequence.prior);
    std::ranges::fill(used_, 0.f);
    for (const ExpertChoice& choice : token.choices) used_[static_cast<size_t>(choice.expert)] = 1;
    for (size_t look = 0; look < kLooks; ++look) {
      if (sequence.said[look].layer == position) LearnWeights(sequence.said[look], weights_[look]);
    }
    if (sequence.prior.scored && sequence.decodes) LearnFar(position, sequence);
    prior_.Learn(position, token, sequence.prior);
    sequence.decodes = token.phase == Phase::kDecode;
    sequence.routed = position;
    Forget(sequence.said);
  }
  static void Forget(std::span<Said> said) {
    for (Said& one : said) one.layer = kNothing;
  }

  // While layers ahead are not routed, the prior is too sure of itself, or not sure enough: far_ says which.
  void LearnFar(int position, const Sequence& sequence) {
    const size_t kind = sequence.prior.kept[static_cast<size_t>(position)];
    if (kind == 0) return;
    Trust& trust = far_[kind];
    const float* logits = &sequence.prior.early[static_cast<size_t>(position) * experts_];
    for (size_t e = 0; e < experts_; ++e) error_[e] = used_[e] - Logistic(trust.bias + trust.scale * logits[e]);
    const float rate = kFarRate / static_cast<float>(experts_);
    trust.bias += DotProduct(error_, ones_) * rate;
    trust.scale += DotProduct(error_, {logits, experts_}) * rate;
  }

  void LearnWeights(const Said& said, std::span<Weights> sets) {
    Weights& weights = sets[static_cast<size_t>(said.set)];
    for (size_t e = 0; e < experts_; ++e) error_[e] = used_[e] - said.probabilities[e];
    for (size_t f = 0; f < kFeatures; ++f) {
      const std::span<const float> feature = std::span(said.features).subspan(f * experts_, experts_);
      weights[f] += DotProduct(error_, feature) * kLearningRate / static_cast<float>(experts_);
    }
  }

  // From gates_, and the prior's log-odds in said.probabilities.
  void FillFeatures(const RoutePrior::Sequence& prior, Said& said) {
    std::ranges::copy(gates_, ordered_.begin());
    const auto last_chosen = ordered_.begin() + static_cast<std::ptrdiff_t>(top_k_ - 1);
    std::nth_element(ordered_.begin(), last_chosen, ordered_.end(), std::greater<>());
    const float threshold = *last_chosen;
    const int occurrences = prior_.occurrences(prior);
    said.set = occurrences == 0 ? 0 : occurrences < kOften ? 1 : 2;
    const auto feature = [&](Feature f) { return &said.features[static_cast<size_t>(f) * experts_]; };
    std::fill_n(feature(kBias), experts_, 1.f);
    float* margin = feature(kGateMargin);
    float* chooses = feature(kGateChooses);
    for (size_t e = 0; e < experts_; ++e) {
      margin[e] = FastLog((gates_[e] + kLeastGate) / (threshold + kLeastGate));
      chooses[e] = gates_[e] >= threshold ? 1.f : 0.f;
    }
    std::ranges::copy(said.probabilities, feature(kPrior));
  }

  // Log-odds.
  void Score(std::span<const Weights> sets, Said& said) const {
    const Weights& weights = sets[static_cast<size_t>(said.set)];
    std::ranges::fill(said.probabilities, 0.f);
    for (size_t f = 0; f < kFeatures; ++f) {
      const float* row = &said.features[f * experts_];
      for (size_t e = 0; e < experts_; ++e) said.probabilities[e] += weights[f] * row[e];
    }
  }

  const ExpertIndex index_;
  const size_t experts_;
  const size_t top_k_;
  const size_t hidden_;
  const GateFn gate_;  // may be null: then the prior alone guesses
  std::array<std::array<Weights, kSets>, kLooks> weights_ = {kFirstWeights, kFirstWeights};
  RoutePrior prior_;
  std::array<Trust, RoutePrior::kFarthest + 1> far_;  // by kind of distance
  absl::flat_hash_map<SequenceId, Sequence> sequences_;

  // Scratch. (experts)
  std::vector<float> used_, error_;
  const std::vector<float> ones_;
  std::vector<float> gates_, ordered_;
};

}  // namespace

std::unique_ptr<ExpertPredictor> MakeLearnedPredictor(const PartContext& context) {
  return std::make_unique<LearnedPredictor>(context);
}

PartMemory LearnedPredictorMemory(const PartContext& context, const PartOptions&) { return LearnedPredictor::Memory(context); }

}  // namespace moed
