#include "tools/plan/hobbit_planner.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/expert/pack_command.h"
#include "core/expert/policies/hobbit_calibration.h"
#include "core/store/checksum.h"
#include "nlohmann/json.hpp"
#include "tools/plan/evaluation_flags.h"
#include "tools/plan/hobbit_unfinished.h"
#include "tools/plan/loss_evaluator.h"
#include "tools/plan/plan_output.h"
#include "tools/plan/plan_writer.h"
#include "tools/terminal/amount.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/progress.h"

namespace moed {
namespace {

constexpr uint64_t kAboutTrials = 85;
constexpr double kKeepRoutingSeconds = 30;  // a process that is killed while it routes loses no more

// Changes nothing; keeps the scores of every token's choices, layer after layer of one step.
class ScoreCollector final : public FidelityRule {
 public:
  ScoreCollector(int layers, int top_k) : step_{layers, top_k} {}

  void Resolve(const LayerDemand& demand, std::span<Action>) override {
    tokens_ = demand.routing.tokens.size();
    for (const TokenRouting& token : demand.routing.tokens) {
      experts_.clear();
      weights_.clear();
      for (const ExpertChoice& choice : token.choices) {
        experts_.push_back(choice.expert);
        weights_.push_back(choice.probability);
      }
      AddScored(experts_, weights_, step_);
    }
  }

  // The step as a sequence, token by token. Then forgets it.
  void MoveTo(HobbitRouting& routing) {
    const auto top_k = static_cast<size_t>(step_.top_k);
    for (size_t token = 0; token < tokens_; ++token) {
      for (size_t layer = 0; layer < static_cast<size_t>(step_.layers); ++layer) {
        const auto first = step_.choices.begin() + static_cast<std::ptrdiff_t>((layer * tokens_ + token) * top_k);
        routing.choices.insert(routing.choices.end(), first, first + static_cast<std::ptrdiff_t>(top_k));
      }
    }
    routing.sequence_ends.push_back(routing.tokens());
    step_.choices.clear();
  }

 private:
  HobbitRouting step_;  // (layers, tokens, top_k)
  size_t tokens_ = 0;
  std::vector<int32_t> experts_;
  std::vector<float> weights_;
};

class HobbitPlanner final : public Planner {
 public:
  void DefineFlags(CLI::App& command) override {
    evaluation_.Define(command);
    const auto share = [&command](const char* name, double& value, const char* help) {
      command.add_option(name, value, help)->check(CLI::Range(0.0, 1.0))->capture_default_str();
    };
    share("--high", split_.high, "share of a token's choices that T1 is to leave at the reference precision");
    share("--low", split_.low, "share that T2 is to leave at the last precision; the rest is skipped");
    share("--cache-share", cache_share_,
          "experts at the reference precision that the cache holds for which its tuning is sought");
    output_.Define(command, ".hobbit.json");
  }

  absl::Status Run() override {
    if (split_.high + split_.low > 1 + 1e-9) {
      return InvalidArgument("--high ", split_.high, " and --low ", split_.low, " sum to more than 1");
    }
    MOED_RETURN_IF_ERROR(output_.Choose(evaluation_.store));
    MOED_ASSIGN_OR_RETURN(const std::unique_ptr<LossEvaluator> text, evaluation_.OpenDecoder());
    const StoreReader& store = text->store();
    if (store.description().precisions.size() < 2) {
      return FailedPrecondition(store.path(), " holds experts at one precision, which leaves no lower one for a miss; ",
                                PackCommand(store, FormatsWithOneMore(store)), " makes a store of two");
    }
    MOED_ASSIGN_OR_RETURN(MeasuredLosses penalties,
                          output_.OpenLosses(*text, StrCat(split_.high, " ", split_.low, " ", cache_share_)));
    const UnfinishedRouting unfinished(output_.path, *text);
    MOED_ASSIGN_OR_RETURN(const HobbitRouting routing, Route(*text, unfinished));
    HobbitPlan plan;
    plan.thresholds = ThresholdsOfSplit(routing, split_);
    const HobbitSplit split = SplitOfThresholds(routing, plan.thresholds);
    absl::StatusOr<HobbitFound> found = Search(store, routing, plan.thresholds, penalties);
    if (!found.ok()) return output_.Kept(found.status());
    plan.tuning = found->tuning;
    MOED_RETURN_IF_ERROR(WritePlanFile(output_.path, ToJson(plan, split, found->penalty, *text)));
    unfinished.Remove();
    Print(plan, split, found->penalty);
    return penalties.Remove();
  }

 private:
  // The whole text; what is kept of it stays until the plan is written.
  static absl::StatusOr<HobbitRouting> Route(LossEvaluator& text, const UnfinishedRouting& unfinished) {
    HobbitRouting routing = unfinished.TakeUp();
    ScoreCollector collector(routing.layers, routing.top_k);
    Progress progress("routing tokens:", static_cast<uint64_t>(text.scored_tokens()), routing.tokens(), stderr, Clock::Real(),
                      CountText);
    int64_t kept_nanos = Clock::Real().NowNanos();
    for (auto window = static_cast<int>(routing.sequence_ends.size()); window < text.windows(); ++window) {
      if (Interrupted()) {
        progress.Break();
        MOED_RETURN_IF_ERROR(unfinished.Write(routing));
        return absl::CancelledError(
            StrCat("interrupted; what was routed is kept in ", unfinished.path(), ": run the same command again to resume"));
      }
      MOED_RETURN_IF_ERROR(text.WindowNats(window, collector, /*mask=*/nullptr).status());
      collector.MoveTo(routing);
      progress.Update(routing.tokens());
      const bool whole = window + 1 == text.windows();
      if (!whole && SecondsBetween(kept_nanos, Clock::Real().NowNanos()) < kKeepRoutingSeconds) continue;
      MOED_RETURN_IF_ERROR(unfinished.Write(routing));
      kept_nanos = Clock::Real().NowNanos();
    }
    progress.Finish();
    return routing;
  }

  absl::StatusOr<HobbitFound> Search(const StoreReader& store, const HobbitRouting& routing, const HobbitThresholds& thresholds,
                                     MeasuredLosses& penalties) const {
    const StoreDescription& description = store.description();
    const uint64_t record_bytes[] = {LargestRecordBytes(description.precisions.front()),
                                     LargestRecordBytes(description.precisions.back())};
    const auto experts = static_cast<double>(description.moe_layers.size()) * description.experts_per_layer;
    const ExpertModelShape model{.moe_layers = description.moe_layers,
                                 .experts_per_layer = static_cast<int>(description.experts_per_layer),
                                 .top_k = routing.top_k,
                                 .precisions = 2,
                                 .record_bytes = record_bytes,
                                 .capacity_bytes = static_cast<uint64_t>(cache_share_ * experts) * record_bytes[0]};
    Progress progress("tunings tried:", kAboutTrials, std::min<uint64_t>(penalties.size(), kAboutTrials), stderr, Clock::Real(),
                      CountText);
    const auto penalty = [&](const HobbitTuning& tuning) -> absl::StatusOr<double> {
      const HobbitWeights& weights = tuning.weights;
      const uint64_t configuration =
          Checksum(absl::StrFormat("%.2f %.2f %.2f %.2f", weights.lru, weights.lfu, weights.lhu, tuning.high_cache));
      if (const std::optional<double> known = penalties.Find(configuration)) return *known;
      if (Interrupted()) return absl::CancelledError("interrupted");
      const double measured = HobbitMissPenalty(routing, model, thresholds, tuning);
      MOED_RETURN_IF_ERROR(penalties.Add(configuration, measured));
      progress.Update(penalties.size());
      return measured;
    };
    absl::StatusOr<HobbitFound> found = SearchHobbitTuning(penalty);
    progress.Break();
    return found;
  }

  nlohmann::ordered_json ToJson(const HobbitPlan& plan, const HobbitSplit& split, double penalty,
                                const LossEvaluator& text) const {
    const HobbitWeights& weights = plan.tuning.weights;
    nlohmann::ordered_json json{{"model_hash", StrCat(absl::Hex(text.store().model_hash(), absl::kZeroPad16))},
                                {"t1", plan.thresholds.high},
                                {"t2", plan.thresholds.low},
                                {"lru", weights.lru},
                                {"lfu", weights.lfu},
                                {"lhu", weights.lhu},
                                {"fld", weights.fld},
                                {"high_cache", plan.tuning.high_cache}};
    json["report"] = {{"miss_penalty", penalty},       {"high", split.high},         {"low", split.low},
                      {"cache_share", cache_share_},   {"wanted_high", split_.high}, {"wanted_low", split_.low},
                      {"tokens", text.scored_tokens()}};
    return json;
  }

  void Print(const HobbitPlan& plan, const HobbitSplit& split, double penalty) const {
    const HobbitWeights& weights = plan.tuning.weights;
    std::printf("T1 = %.4f, T2 = %.4f: %.1f %% high, %.1f %% low, %.1f %% skipped\n", plan.thresholds.high, plan.thresholds.low,
                split.high * 100, split.low * 100, (1 - split.high - split.low) * 100);
    std::printf(
        "lru %.2f lfu %.2f lhu %.2f fld %.2f, %.0f %% of the cache high: miss penalty %.4f a choice, in a cache of %.0f %%\n%s\n",
        weights.lru, weights.lfu, weights.lhu, weights.fld, plan.tuning.high_cache * 100, penalty, cache_share_ * 100,
        output_.path.c_str());
  }

  EvaluationFlags evaluation_;
  HobbitSplit split_;
  double cache_share_ = 0.25;
  PlanOutput output_;
};

}  // namespace

std::unique_ptr<Planner> MakeHobbitPlanner() { return std::make_unique<HobbitPlanner>(); }

}  // namespace moed
