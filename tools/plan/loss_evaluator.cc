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
#include "core/store/checksum.h"
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
  MOED_RETURN_IF_ERROR(evaluator->TakeTokens(text, options));
  MOED_RETURN_IF_ERROR(evaluator->Load(store_path, options));
  return evaluator;
}

absl::Status LossEvaluator::TakeTokens(std::string_view text, const LossOptions& options) {
  window_ = options.window;
  if (window_ > spec_.max_positions) {
    return InvalidArgument("a window of ", window_, " tokens is more than the model's context of ", spec_.max_positions);
  }
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::FromBlob(store_->TakeTokenizer()));
  MOED_ASSIGN_OR_RETURN(tokens_, tokenizer->Encode(text, {.add_special_tokens = false, .parse_special_tokens = false}));
  if (tokens_.size() < static_cast<size_t>(options.tokens)) {
    return InvalidArgument("the text has ", tokens_.size(), " tokens, ", options.tokens, " are to be scored");
  }
  tokens_.resize(options.tokens);
  return absl::OkStatus();
}

absl::Status LossEvaluator::Load(const std::string& store_path, const LossOptions& options) {
  executor_ = MakeThreadPool(options.threads);
  MOED_ASSIGN_OR_RETURN(backend_, MakeComputeBackend("auto", *executor_));
  MOED_ASSIGN_OR_RETURN(reads_, OpenReadBackend("auto", store_path, {}));
  MOED_ASSIGN_OR_RETURN(kv_, KvPool::Create(spec_, {.pages = KvPool::PagesFor(window_)}, backend_->memory()));
  MOED_ASSIGN_OR_RETURN(model_, Model::Load(*store_, spec_, {window_, window_, kLogitsRows}, *backend_, *kv_, nullptr));
  ProviderInputs inputs;
  inputs.store = store_.get();
  inputs.reads = reads_.get();
  inputs.allocator = &backend_->memory().shared();
  inputs.router = {spec_.top_k, spec_.hidden};
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

// A rest of one token scores nothing.
int LossEvaluator::windows() const {
  const int count = static_cast<int>(tokens_.size());
  return count / window_ + (count % window_ > 1 ? 1 : 0);
}

std::span<const TokenId> LossEvaluator::Window(int window) const {
  const auto rest = std::span<const TokenId>(tokens_).subspan(static_cast<size_t>(window) * static_cast<size_t>(window_));
  return rest.first(std::min(rest.size(), static_cast<size_t>(window_)));
}

int LossEvaluator::WindowTokens(int window) const { return static_cast<int>(Window(window).size()) - 1; }

absl::StatusOr<double> LossEvaluator::WindowNats(int number, FidelityRule& rule, RouterMask* mask, StepWatcher* watcher) {
  rule_->target = &rule;
  mask_->target = mask;
  const std::span<const TokenId> window = Window(number);
  KvSequence kv;
  MOED_CHECK(kv_->Reserve(kv, static_cast<int>(window.size())));
  SequenceChunk chunk;
  chunk.sequence = SequenceId(next_sequence_++);
  chunk.phase = Phase::kPrefill;
  chunk.tokens = window.first(window.size() - 1);
  chunk.kv = &kv;
  chunk.fidelity = Fidelity::Fast();
  double nats = 0;
  provider_->OnSequenceStart(chunk.sequence);
  const auto score = [&](int, int token, std::span<float> logits) {
    nats += LogNormalizer(logits) - logits[window[token + 1].value()];
  };
  model_->Forward({&chunk, 1}, *provider_, score, watcher);
  provider_->OnSequenceEnd(chunk.sequence);
  kv_->Release(kv);
  MOED_RETURN_IF_ERROR(chunk.status);
  if (!std::isfinite(nats)) return Internal("the model's logits are not finite numbers");
  return nats;
}

int LossEvaluator::experts() const { return static_cast<int>(store_->description().moe_layers.size()) * spec_.experts; }

GateFn LossEvaluator::gate() {
  return [this](LayerId layer, std::span<const float> hidden, std::span<float> probabilities) {
    model_->GateProbabilities(layer, hidden, probabilities);
  };
}

uint64_t LossEvaluator::tokens_hash() const {
  return Checksum(StrCat(window_, ":", JoinNames(tokens_, [](TokenId token) { return token.value(); })));
}

int LossEvaluator::scored_tokens() const {
  const int count = static_cast<int>(tokens_.size()), whole = count / window_, rest = count % window_;
  return whole * (window_ - 1) + std::max(rest - 1, 0);
}

}  // namespace moed
