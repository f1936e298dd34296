#include "tools/plan/learn_planner.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>

#include "core/base/byte_size.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/base/version.h"
#include "core/expert/learning/learned_state.h"
#include "core/expert/presets/preset.h"
#include "core/store/checksum.h"
#include "tools/plan/evaluation_flags.h"
#include "tools/plan/loss_evaluator.h"
#include "tools/plan/plan_output.h"
#include "tools/terminal/amount.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/progress.h"

namespace moed {
namespace {

constexpr double kKeepSeconds = 30;               // a process that is killed loses no more
constexpr size_t kTableBytes = size_t{64} << 20;  // the most that a daemon gives each table; it takes up what it has room for

class LearnPlanner final : public Planner {
 public:
  void DefineFlags(CLI::App& command) override {
    evaluation_.Define(command);
    output_.Define(command, ".learned");
  }

  absl::Status Run() override {
    MOED_RETURN_IF_ERROR(output_.Choose(evaluation_.store));
    MOED_ASSIGN_OR_RETURN(const std::unique_ptr<LossEvaluator> text, evaluation_.Open());
    MOED_ASSIGN_OR_RETURN(const PresetSetup preset, ChoosePreset({.preset = "auto"}, text->store()));
    MOED_RETURN_IF_ERROR(MakeLearners(preset, *text));
    const uint64_t hash = text->store().model_hash();
    const LearnedFile unfinished{output_.path + ".unfinished", hash,
                                 StrCat("part of a text: ", Checksum(StrCat(Version(), "\n", text->tokens_hash())))};
    MOED_RETURN_IF_ERROR(TakeUp(unfinished));
    MOED_RETURN_IF_ERROR(Learn(*text, unfinished));
    MOED_RETURN_IF_ERROR(SaveLearned({output_.path, hash, LearnersOf(preset)}, Visit(/*with_windows=*/false)));
    std::error_code ignored;
    std::filesystem::remove(unfinished.path, ignored);
    std::printf("%s: %d tokens, %s; for moed --learned-state\n", output_.path.c_str(), text->scored_tokens(),
                FormatBytes(std::filesystem::file_size(output_.path, ignored)).c_str());
    return absl::OkStatus();
  }

 private:
  absl::Status MakeLearners(const PresetSetup& preset, const LossEvaluator& text) {
    const StoreDescription& store = text.store().description();
    const PartContext context{.model = {.moe_layers = store.moe_layers,
                                        .experts_per_layer = store.experts_per_layer,
                                        .top_k = text.spec().top_k,
                                        .table_bytes = kTableBytes,
                                        .encoder_layers = text.spec().encoder_layers()},
                              .hidden = text.spec().hidden,
                              .store = &text.store()};
    MOED_ASSIGN_OR_RETURN(PresetParts parts, MakePresetParts(preset, context));
    policy_ = std::move(parts.policy);
    predictor_ = std::move(parts.predictor);
    return absl::OkStatus();
  }

  std::function<void(LearnedState&)> Visit(bool with_windows) {
    return [this, with_windows](LearnedState& state) {
      if (with_windows) state.Value(windows_, [](int32_t windows) { return windows >= 0; });
      policy_->VisitLearned(state);
      predictor_->VisitLearned(state);
    };
  }

  // What of another store, text or version is there is begun anew.
  absl::Status TakeUp(const LearnedFile& unfinished) {
    const absl::StatusOr<LearnedTaken> taken = TakeLearned(unfinished, Visit(/*with_windows=*/true));
    if (absl::IsNotFound(taken.status())) return absl::OkStatus();
    if (taken.ok()) {
      std::fprintf(stderr, "resuming %s: %d windows of the text are already learned\n", unfinished.path.c_str(), windows_);
    } else {
      std::fprintf(stderr, "starting over: %s\n", std::string(taken.status().message()).c_str());
    }
    return absl::OkStatus();
  }

  absl::Status Learn(LossEvaluator& text, const LearnedFile& unfinished) {
    uint64_t tokens = 0;
    for (int window = 0; window < std::min(windows_, text.windows()); ++window) {
      tokens += static_cast<uint64_t>(text.WindowTokens(window));
    }
    Progress progress("learning from tokens:", static_cast<uint64_t>(text.scored_tokens()), tokens, stderr, Clock::Real(),
                      CountText);
    int64_t kept_nanos = Clock::Real().NowNanos();
    const auto keep = [&] {
      kept_nanos = Clock::Real().NowNanos();
      return SaveLearned(unfinished, Visit(/*with_windows=*/true));
    };
    WindowRouting routing(text.spec().encoder_layers());
    while (windows_ < text.windows()) {
      if (Interrupted()) {
        progress.Break();
        MOED_RETURN_IF_ERROR(keep());
        return absl::CancelledError(
            StrCat("interrupted; what was learned is kept in ", unfinished.path, ": run the same command again to resume"));
      }
      MOED_RETURN_IF_ERROR(text.WindowNats(windows_, routing, /*mask=*/nullptr).status());
      tokens += static_cast<uint64_t>(text.WindowTokens(windows_));
      routing.Teach(SequenceId(static_cast<uint64_t>(++windows_)), *policy_, *predictor_);
      progress.Update(tokens);
      if (SecondsBetween(kept_nanos, Clock::Real().NowNanos()) >= kKeepSeconds) MOED_RETURN_IF_ERROR(keep());
    }
    progress.Finish();
    return absl::OkStatus();
  }

  EvaluationFlags evaluation_;
  PlanOutput output_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::unique_ptr<ExpertPredictor> predictor_;
  int32_t windows_ = 0;  // of the text that were learned from
};

}  // namespace

std::unique_ptr<Planner> MakeLearnPlanner() { return std::make_unique<LearnPlanner>(); }

void WindowRouting::Resolve(const LayerDemand& demand, std::span<Action>) {
  layers_.push_back({demand.routing.layer});
  Layer& layer = layers_.back();
  for (const TokenRouting& token : demand.routing.tokens) {
    layer.tokens.push_back({token.token, {token.choices.begin(), token.choices.end()}});
  }
}

void WindowRouting::Teach(SequenceId sequence, EvictionPolicy& policy, ExpertPredictor& predictor) {
  const auto encodes = [this](const Layer& layer) { return layer.layer.value() < encoder_layers_; };
  const auto of_encoder = static_cast<size_t>(std::ranges::count_if(layers_, encodes));  // a window's first
  policy.OnSequenceStart(sequence);
  predictor.OnSequenceStart(sequence);
  TeachSource(sequence, std::span(layers_).first(of_encoder), policy, predictor);
  TeachAnswer(sequence, std::span(layers_).subspan(of_encoder), policy, predictor);
  policy.OnSequenceEnd(sequence);
  predictor.OnSequenceEnd(sequence);
  layers_.clear();
}

TokenRouting WindowRouting::Routed(SequenceId sequence, const Layer& layer, size_t token, Phase phase) {
  return {.sequence = sequence,
          .token = layer.tokens[token].token,
          .phase = phase,
          .choices = layer.tokens[token].choices,
          .before = token > 0 ? layer.tokens[token - 1].token : TokenId{-1}};
}

void WindowRouting::TeachSource(SequenceId sequence, std::span<const Layer> layers, EvictionPolicy& policy,
                                ExpertPredictor& predictor) {
  std::vector<TokenRouting> routed;
  for (const Layer& layer : layers) {
    routed.clear();
    for (size_t i = 0; i < layer.tokens.size(); ++i) routed.push_back(Routed(sequence, layer, i, Phase::kPrefill));
    const LayerRouting routing{layer.layer, routed};
    policy.Learn(routing);
    policy.OnRouted(routing);
    predictor.OnRouted(routing);
  }
}

void WindowRouting::TeachAnswer(SequenceId sequence, std::span<const Layer> layers, EvictionPolicy& policy,
                                ExpertPredictor& predictor) {
  const size_t tokens = layers.empty() ? 0 : layers.front().tokens.size();
  std::vector<Guess> guesses;
  for (size_t i = 0; i < tokens; ++i) {
    policy.OnToken(sequence, layers.front().tokens[i].token);
    predictor.OnToken(sequence, layers.front().tokens[i].token);
    for (const Layer& layer : layers) {
      const TokenRouting routed[] = {Routed(sequence, layer, i, Phase::kDecode)};
      const LayerRouting routing{layer.layer, routed};
      policy.Learn(routing);
      policy.OnRouted(routing);
      predictor.OnRouted(routing);
      guesses.clear();
      predictor.Predict(sequence, layer.layer, guesses);  // it learns from what it said
    }
  }
}

}  // namespace moed
