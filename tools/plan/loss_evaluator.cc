#include "tools/plan/loss_evaluator.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/engine/logprobs.h"
#include "core/expert/builder/build_provider.h"
#include "core/expert/presets/preset.h"
#include "core/tokenizer/tokenizer.h"

namespace moed {
namespace {

constexpr int kLogitsRows = 16;

}  // namespace

AssignedPrecisions::AssignedPrecisions(const StoreDescription& store, std::vector<Precision> precisions)
    : first_(store.moe_layers.back().value() + 1, -1), precisions_(std::move(precisions)) {
  MOED_CHECK(precisions_.size() == store.moe_layers.size() * static_cast<size_t>(store.experts_per_layer));
  for (size_t i = 0; i < store.moe_layers.size(); ++i) {
    first_[store.moe_layers[i].value()] = static_cast<int>(i) * store.experts_per_layer;
  }
}

void AssignedPrecisions::Resolve(const LayerDemand& demand, std::span<Action> actions) {
  const int first = first_[demand.routing.layer.value()];
  for (size_t i = 0; i < actions.size(); ++i) actions[i].precision = precisions_[first + demand.wanted[i].expert];
}

// The provider owns its rule for life; what it asks changes from one measurement to the next.
class LossEvaluator::SwitchedRule final : public FidelityRule {
 public:
  void Resolve(const LayerDemand& demand, std::span<Action> actions) override { target->Resolve(demand, actions); }
  FidelityRule* target = nullptr;
};

class LossEvaluator::SwitchedMask final : public RouterMask {
 public:
  void Observe(LayerId layer, const TokenRouting& token, std::span<const float> hidden, std::span<const float> logits) override {
    if (target != nullptr) target->Observe(layer, token, hidden, logits);
  }
  void Apply(LayerId layer, const TokenRouting& token, const ResidencyView& residents, std::span<float> logits) override {
    if (target != nullptr) target->Apply(layer, token, residents, logits);
  }
  RouterMask* target = nullptr;
};

LossEvaluator::~LossEvaluator() = default;

absl::StatusOr<std::unique_ptr<LossEvaluator>> LossEvaluator::Open(const std::string& store_path, std::string_view text,
                                                                   const LossOptions& options) {
  std::unique_ptr<LossEvaluator> evaluator(new LossEvaluator);
  MOED_ASSIGN_OR_RETURN(evaluator->store_, StoreReader::Open(store_path));
  MOED_ASSIGN_OR_RETURN(evaluator->spec_, SpecFromJson(evaluator->store_->description().model_spec));
  MOED_ASSIGN_OR_RETURN(evaluator->text_, evaluator->TakeText(text, options));
  MOED_RETURN_IF_ERROR(evaluator->Load(store_path, options));
  return evaluator;
}

absl::StatusOr<ScoredText> LossEvaluator::TakeText(std::string_view text, const LossOptions& options) const {
  if (spec_.prefix) return InvalidArgument("the model is a prefix-LM, whose prompts are not scored");
  if (spec_.encoder) return ScoredText::OfPairs(text, spec_, options.tokens);
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::FromBlob(store_->TakeTokenizer()));
  return ScoredText::OfText(text, *tokenizer, spec_, options.tokens, options.window);
}

absl::Status LossEvaluator::Load(const std::string& store_path, const LossOptions& options) {
  executor_ = MakeThreadPool(options.threads);
  MOED_ASSIGN_OR_RETURN(backend_, MakeComputeBackend("auto", *executor_));
  MOED_ASSIGN_OR_RETURN(reads_, OpenReadBackend("auto", store_path, {}));
  MOED_ASSIGN_OR_RETURN(kv_, KvPool::Create(spec_, {.pages = KvPool::PagesFor(text_.MostContext())}, backend_->memory()));
  MOED_ASSIGN_OR_RETURN(
      model_, Model::Load({*store_, spec_, *backend_, *kv_}, {text_.MostStepTokens(), text_.MostContext(), kLogitsRows}));
  ProviderInputs inputs;
  inputs.store = store_.get();
  inputs.reads = reads_.get();
  inputs.allocator = &backend_->memory().shared();
  inputs.router = {spec_.top_k, spec_.hidden, spec_.encoder_layers()};
  inputs.options.capacity_bytes = options.cache_bytes;
  inputs.options.take_what_is_free = false;
  MOED_ASSIGN_OR_RETURN(const PresetSetup setup, ChoosePreset({.preset = "load-on-demand-lru"}, *store_));
  MOED_ASSIGN_OR_RETURN(PresetParts parts, MakeParts(setup, inputs));
  auto rule = std::make_unique<SwitchedRule>();
  auto mask = std::make_unique<SwitchedMask>();
  rule_ = rule.get();
  mask_ = mask.get();
  parts.rule = std::move(rule);
  parts.mask = std::move(mask);
  MOED_ASSIGN_OR_RETURN(provider_, BuildProvider(setup, inputs, std::move(parts)));
  return absl::OkStatus();
}

absl::StatusOr<double> LossEvaluator::Loss(FidelityRule& rule, RouterMask* mask, bool (*cancelled)()) {
  double nats = 0;
  for (int window = 0; window < windows(); ++window) {
    if (cancelled()) return absl::CancelledError("interrupted");
    MOED_ASSIGN_OR_RETURN(const double window_nats, WindowNats(window, rule, mask));
    nats += window_nats;
  }
  return nats / scored_tokens();
}

double LossEvaluator::Pieces::Mean() const {
  return std::accumulate(nats.begin(), nats.end(), 0.0) / std::accumulate(tokens.begin(), tokens.end(), 0);
}

absl::StatusOr<LossEvaluator::Pieces> LossEvaluator::LossOfWindows(int first, int step, FidelityRule& rule, bool (*cancelled)()) {
  Pieces pieces;
  for (int window = first; window < windows(); window += step) {
    if (cancelled()) return absl::CancelledError("interrupted");
    MOED_ASSIGN_OR_RETURN(const double nats, WindowNats(window, rule, nullptr));
    pieces.nats.push_back(nats);
    pieces.tokens.push_back(WindowTokens(window));
  }
  return pieces;
}

absl::StatusOr<double> LossEvaluator::WindowNats(int number, FidelityRule& rule, RouterMask* mask, StepWatcher* watcher) {
  rule_->target = &rule;
  mask_->target = mask;
  const auto [source, tokens] = text_.window(number);
  KvSequence kv;
  MOED_CHECK(kv_->Reserve(kv, static_cast<int>(source.size() + tokens.size())));
  const SequenceId sequence(next_sequence_++);
  double nats = 0;
  const auto forward = [&](std::span<const TokenId> computed, LogitsSink logits) {
    SequenceChunk chunk;
    chunk.sequence = sequence;
    chunk.phase = Phase::kPrefill;
    chunk.tokens = computed;
    chunk.kv = &kv;
    chunk.fidelity = Fidelity::Fast();
    model_->Forward({&chunk, 1}, *provider_, logits, watcher);
    return chunk.status;
  };
  const auto score = [&, answer = tokens](int, int token, std::span<float> logits) {
    nats += LogNormalizer(logits) - logits[answer[token + 1].value()];
  };
  provider_->OnSequenceStart(sequence);
  absl::Status status = source.empty() ? absl::OkStatus() : forward(source, [](int, int, std::span<float>) {});
  if (status.ok()) status = forward(tokens.first(tokens.size() - 1), score);
  provider_->OnSequenceEnd(sequence);
  kv_->Release(kv);
  MOED_RETURN_IF_ERROR(status);
  if (!std::isfinite(nats)) return Internal("the model's logits are not finite numbers");
  return nats;
}

int LossEvaluator::experts() const { return static_cast<int>(store_->description().moe_layers.size()) * spec_.experts; }

GateFn LossEvaluator::gate() {
  return [this](LayerId layer, std::span<const float> hidden, std::span<float> probabilities) {
    model_->GateProbabilities(layer, hidden, probabilities);
  };
}

}  // namespace moed
