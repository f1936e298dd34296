#include "tools/plan/moments_planner.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>

#include "core/base/byte_size.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/base/version.h"
#include "core/model/model.h"
#include "core/store/checksum.h"
#include "tools/pack/moments.h"
#include "tools/plan/evaluation_flags.h"
#include "tools/plan/loss_evaluator.h"
#include "tools/plan/plan_output.h"
#include "tools/terminal/amount.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/progress.h"

namespace moed {
namespace {

constexpr double kKeepSeconds = 60;  // a process that is killed loses no more

// Every expert as the store's reference has it.
class Reference final : public FidelityRule {
 public:
  void Resolve(const LayerDemand&, std::span<Action>) override {}
};

class Collector final : public StepWatcher {
 public:
  Collector(ExpertMoments& moments, Executor& executor) : moments_(moments), executor_(executor) {}
  void OnLayerDone(std::span<SequenceChunk>) override {}
  void OnExpert(LayerId layer, int32_t expert, const Activations& input, const Activations& inner) override {
    moments_.Add(layer, expert, input, inner, executor_);
  }

 private:
  ExpertMoments& moments_;
  Executor& executor_;
};

class MomentsPlanner final : public Planner {
 public:
  MomentsPlanner() { evaluation_.tokens = 1 << 16; }

  void DefineFlags(CLI::App& command) override {
    evaluation_.Define(command);
    output_.Define(command, ".moments");
  }

  absl::Status Run() override {
    MOED_RETURN_IF_ERROR(output_.Choose(evaluation_.store));
    MOED_ASSIGN_OR_RETURN(const std::unique_ptr<LossEvaluator> text, evaluation_.Open());
    ExpertMoments moments(text->spec());
    unfinished_ = output_.path + ".unfinished";
    source_ =
        StrCat("part of a text: ", Checksum(StrCat(Version(), "\n", text->store().model_hash(), "\n", text->tokens_hash())));
    MOED_RETURN_IF_ERROR(TakeUp(moments));
    MOED_RETURN_IF_ERROR(Collect(*text, moments));
    MOED_RETURN_IF_ERROR(moments.Save(output_.path, std::string(ExpertMoments::kWhole), windows_));
    std::error_code ignored;
    std::filesystem::remove(unfinished_, ignored);
    std::printf("%s: %d tokens, %s; for moed-pack --calibration\n", output_.path.c_str(), text->scored_tokens(),
                FormatBytes(std::filesystem::file_size(output_.path, ignored)).c_str());
    if (const size_t none = moments.experts_without_rows(); none > 0) {
      std::printf("%zu of %d experts were chosen for no token of the text\n", none, text->experts());
    }
    return absl::OkStatus();
  }

 private:
  // What of another store, text or version is there is begun anew.
  absl::Status TakeUp(ExpertMoments& moments) {
    const absl::StatusOr<int32_t> taken = moments.Take(unfinished_, source_);
    if (absl::IsNotFound(taken.status())) return absl::OkStatus();
    if (taken.ok()) {
      windows_ = *taken;
      std::fprintf(stderr, "resuming %s: %d windows of the text are already there\n", unfinished_.c_str(), windows_);
    } else {
      std::fprintf(stderr, "starting over: %s\n", std::string(taken.status().message()).c_str());
    }
    return absl::OkStatus();
  }

  absl::Status Collect(LossEvaluator& text, ExpertMoments& moments) {
    uint64_t tokens = 0;
    for (int window = 0; window < std::min(windows_, text.windows()); ++window) {
      tokens += static_cast<uint64_t>(text.WindowTokens(window));
    }
    Progress progress("collecting from tokens:", static_cast<uint64_t>(text.scored_tokens()), tokens, stderr, Clock::Real(),
                      CountText);
    int64_t kept_nanos = Clock::Real().NowNanos();
    Reference rule;
    Collector collector(moments, text.executor());
    while (windows_ < text.windows()) {
      if (Interrupted()) {
        progress.Break();
        MOED_RETURN_IF_ERROR(moments.Save(unfinished_, source_, windows_));
        return absl::CancelledError(
            StrCat("interrupted; what was collected is kept in ", unfinished_, ": run the same command again to resume"));
      }
      MOED_RETURN_IF_ERROR(text.WindowNats(windows_, rule, /*mask=*/nullptr, &collector).status());
      moments.Settle(text.executor());
      tokens += static_cast<uint64_t>(text.WindowTokens(windows_++));
      progress.Update(tokens);
      if (SecondsBetween(kept_nanos, Clock::Real().NowNanos()) < kKeepSeconds) continue;
      MOED_RETURN_IF_ERROR(moments.Save(unfinished_, source_, windows_));
      kept_nanos = Clock::Real().NowNanos();
    }
    progress.Finish();
    return absl::OkStatus();
  }

  EvaluationFlags evaluation_;
  PlanOutput output_;
  std::string unfinished_;
  std::string source_;
  int32_t windows_ = 0;  // of the text that are in the moments
};

}  // namespace

std::unique_ptr<Planner> MakeMomentsPlanner() { return std::make_unique<MomentsPlanner>(); }

}  // namespace moed
