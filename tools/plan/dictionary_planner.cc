#include "tools/plan/dictionary_planner.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "absl/strings/str_format.h"
#include "core/base/byte_size.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/base/version.h"
#include "core/expert/top_experts.h"
#include "core/store/checksum.h"
#include "tools/plan/dictionary_unfinished.h"
#include "tools/plan/evaluation_flags.h"
#include "tools/plan/loss_evaluator.h"
#include "tools/plan/plan_output.h"
#include "tools/terminal/amount.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/progress.h"

namespace moed {
namespace {

constexpr double kKeepSeconds = 30;  // a process that is killed loses no more

class DictionaryPlanner final : public Planner {
 public:
  void DefineFlags(CLI::App& command) override {
    evaluation_.Define(command);
    command
        .add_option("--table", table_, "size of the dictionary in memory and on disk; more keys than fit leave the rarest out")
        ->option_text("BYTES (default: 8MiB)");
    output_.Define(command, ".paths");
  }

  absl::Status Run() override {
    MOED_RETURN_IF_ERROR(output_.Choose(evaluation_.store));
    MOED_ASSIGN_OR_RETURN(const uint64_t table_bytes, ParseBytes(table_));
    MOED_ASSIGN_OR_RETURN(const std::unique_ptr<LossEvaluator> text, evaluation_.Open());
    UnfinishedDictionary unfinished(output_.path, Checksum(StrCat(Version(), "\n", text->store().model_hash(), "\n",
                                                                  text->tokens_hash(), "\n", table_bytes)));
    DictionaryState state = TakeUp(unfinished, *text);
    const ExpertIndex experts(text->store().description().moe_layers, text->spec().experts, 1);
    if (state.paths == nullptr) {
      state.paths =
          std::make_unique<ActivationPaths>(experts.layers(), experts.experts_per_layer(), ActivationPaths::kReach, table_bytes);
    }
    MOED_RETURN_IF_ERROR(Count(experts, *text, unfinished, state));
    MOED_RETURN_IF_ERROR(state.paths->Write(output_.path, text->store().model_hash()));
    unfinished.Remove();
    std::printf("%s: %llu tokens, %s\n%s", output_.path.c_str(), static_cast<unsigned long long>(state.tokens),
                FormatBytes(state.paths->memory_bytes()).c_str(), state.report.Text().c_str());
    return absl::OkStatus();
  }

 private:
  DictionaryState TakeUp(const UnfinishedDictionary& unfinished, const LossEvaluator& text) const {
    const auto layers = static_cast<int>(text.store().description().moe_layers.size());
    absl::StatusOr<DictionaryState> state = unfinished.Read(layers, text.spec().experts);
    if (!state.ok()) {
      std::fprintf(stderr, "starting over: %s.unfinished was left by another store, text, setting or version, or is damaged\n",
                   output_.path.c_str());
      return {};
    }
    if (state->paths != nullptr) {
      std::fprintf(stderr, "resuming %s.unfinished: %llu tokens are already counted\n", output_.path.c_str(),
                   static_cast<unsigned long long>(state->tokens));
    }
    return *std::move(state);
  }

  absl::Status Count(const ExpertIndex& experts, LossEvaluator& text, UnfinishedDictionary& unfinished,
                     DictionaryState& state) const {
    PathCounter counter(experts, static_cast<size_t>(text.scored_tokens()) / 2, state.tokens, *state.paths, state.report);
    Progress progress("counting tokens:", static_cast<uint64_t>(text.scored_tokens()), state.tokens, stderr, Clock::Real(),
                      CountText);
    int64_t kept_nanos = Clock::Real().NowNanos();
    const auto keep = [&] {
      kept_nanos = Clock::Real().NowNanos();
      return unfinished.Write(state);
    };
    while (state.windows < text.windows()) {
      if (Interrupted()) {
        progress.Break();
        MOED_RETURN_IF_ERROR(keep());
        return absl::CancelledError(StrCat("interrupted; what was counted is kept in ", output_.path,
                                           ".unfinished: run the same command again to resume"));
      }
      counter.Begin(text.WindowTokens(state.windows));
      MOED_RETURN_IF_ERROR(text.WindowNats(state.windows, counter, /*mask=*/nullptr).status());
      ++state.windows;
      state.tokens = counter.tokens();
      progress.Update(state.tokens);
      if (SecondsBetween(kept_nanos, Clock::Real().NowNanos()) >= kKeepSeconds) MOED_RETURN_IF_ERROR(keep());
    }
    progress.Finish();
    return absl::OkStatus();
  }

  EvaluationFlags evaluation_;
  PlanOutput output_;
  std::string table_ = "8MiB";
};

}  // namespace

std::unique_ptr<Planner> MakeDictionaryPlanner() { return std::make_unique<DictionaryPlanner>(); }

PathCounter::PathCounter(const ExpertIndex& experts, size_t report_from, size_t seen, ActivationPaths& paths,
                         DictionaryReport& report)
    : index_(experts),
      report_from_(report_from),
      paths_(paths),
      report_(report),
      seen_tokens_(seen),
      probabilities_(static_cast<size_t>(experts.experts_per_layer())),
      order_(probabilities_.size()) {}

void PathCounter::Count(const LayerRouting& routing) {
  const int position = index_.Position(routing.layer);
  tokens_.Advance(position, routing, [&](const TokenRouting&, const PathKey& key, const ExpertSet& chosen) {
    if (position > 0 && seen_tokens_ > report_from_) Compare(position, key, chosen);
    paths_.Add(position, key, chosen);
  });
}

void PathCounter::Compare(int position, const PathKey& key, const ExpertSet& chosen) {
  DictionaryReport::Source& source = report_.sources[EnumIndex(paths_.Estimate(position, key, probabilities_))];
  ++source.estimates;
  source.chosen += chosen.size();
  for (const int32_t expert : TopExperts(probabilities_, chosen.size(), order_)) {
    source.right += std::ranges::binary_search(chosen, expert);
  }
}

std::string DictionaryReport::Text() const {
  Source all;
  for (const Source& source : sources) {
    all.estimates += source.estimates;
    all.chosen += source.chosen;
    all.right += source.right;
  }
  const auto percent = [](uint64_t part, uint64_t whole) {
    return whole == 0 ? 0. : 100. * static_cast<double>(part) / static_cast<double>(whole);
  };
  const auto row = [&](const char* name, const Source& source) {
    return absl::StrFormat("%-16s %6.1f %% %12.1f %%\n", name, percent(source.estimates, all.estimates),
                           percent(source.right, source.chosen));
  };
  std::string text = "the later half's tokens, each estimated before it was counted:\nanswered by         share   top-k recall\n";
  for (size_t i = 0; i < sources.size(); ++i) text += row(kPathSourceNames[i], sources[i]);
  return text + row("all", all);
}

}  // namespace moed
