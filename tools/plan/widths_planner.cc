#include "tools/plan/widths_planner.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/byte_size.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/store/checksum.h"
#include "tools/plan/evaluation_flags.h"
#include "tools/plan/loss_evaluator.h"
#include "tools/plan/plan_output.h"
#include "tools/plan/widths_file.h"
#include "tools/plan/widths_search.h"
#include "tools/terminal/amount.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/progress.h"

namespace moed {
namespace {

constexpr double kLargestLossPercent = 1e6;
constexpr int kLeastWindows = 4;  // two to plan on, two to confirm on

std::string FormatNames(const StoreDescription& store) { return JoinNames(store.precisions, PrecisionName); }

// Those of `names`, all where it is empty; most bytes first.
absl::StatusOr<std::vector<Width>> ChooseWidths(const StoreReader& reader, const std::vector<std::string>& names) {
  const StoreDescription& store = reader.description();
  if (store.precisions.size() < 2) {
    return FailedPrecondition(reader.path(), " holds experts at ", FormatNames(store),
                              " alone, which leaves nothing to choose; moed-pack CHECKPOINT STORE --expert-formats ",
                              "q8,q4,q2p makes a store of several");
  }
  for (const std::string& name : names) {
    if (std::count(names.begin(), names.end(), name) > 1) return InvalidArgument("--widths names ", name, " twice");
    bool found = false;
    for (size_t p = 0; p < store.precisions.size(); ++p) found = found || PrecisionName(store.precisions[p]) == name;
    if (!found)
      return InvalidArgument("--widths: ", reader.path(), " has no experts at '", name, "'; it has: ", FormatNames(store));
  }
  if (names.size() == 1) return InvalidArgument("--widths names one width, which leaves nothing to choose; name two or more");
  std::vector<Width> widths;
  for (size_t p = 0; p < store.precisions.size(); ++p) {
    const std::string name = PrecisionName(store.precisions[p]);
    if (!names.empty() && std::count(names.begin(), names.end(), name) == 0) continue;
    widths.push_back({static_cast<Precision>(p), name, AllRecordBytes(store, static_cast<Precision>(p))});
  }
  std::stable_sort(widths.begin(), widths.end(), [](const Width& a, const Width& b) { return a.bytes > b.bytes; });
  return widths;
}

void PrintPlan(const WidthsQuestion& question, const WidthsPlan& plan, uint64_t bytes, const std::string& path) {
  for (size_t i = 0; i < question.widths.size(); ++i) {
    std::printf("all experts at %-6s loss %9.4f %%\n", question.widths[i].name.c_str(), plan.uniform_losses[i] * 100);
  }
  std::printf("%d of %d experts at %s, the others at %s: loss %.4f %% (allowed %.4f %%), %s instead of %s at %s\n%s\n",
              plan.lowered, question.experts, question.widths[plan.lower].name.c_str(), question.widths[plan.upper].name.c_str(),
              plan.loss * 100, question.tolerable_loss * 100, FormatBytes(bytes).c_str(),
              FormatBytes(question.widths[plan.upper].bytes).c_str(), question.widths[plan.upper].name.c_str(), path.c_str());
  if (!plan.confirmed) return;
  std::printf("on the half of the text that was not planned on: loss %.4f %%, at most %.4f %% (%.4g %% sure)%s\n",
              plan.confirmed->loss * 100, plan.confirmed->bound * 100, question.confidence * 100,
              plan.confirmed->holds ? "" : "; THE ALLOWED LOSS IS NOT KEPT: more text, or a larger loss, is needed");
}

class WidthsPlanner final : public Planner {
 public:
  void DefineFlags(CLI::App& command) override {
    evaluation_.Define(command);
    command.add_option("--loss-percent", loss_percent_, "perplexity may grow by so much over that of the store's reference")
        ->check(CLI::Range(0.0, kLargestLossPercent))
        ->option_text("P (default: 2)");
    command.add_option("--widths", widths_, "formats that experts may have (default: all that the store holds)")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->option_text("F,F,...");
    command
        .add_option(
            "--confidence", confidence_percent_,
            "half of the text is planned on; on the other half the loss is within --loss-percent, so sure by the spread of "
            "windows, or the plan says that it is not. 0: all of the text is planned on, and nothing is known of other text")
        ->check(CLI::Range(0.0, 99.9))
        ->option_text("P (default: 95)");
    output_.Define(command, ".widths.json");
  }

  absl::Status Run() override {
    MOED_RETURN_IF_ERROR(output_.Choose(evaluation_.store));
    WidthsQuestion question;
    {
      MOED_ASSIGN_OR_RETURN(const std::unique_ptr<StoreReader> store, StoreReader::Open(evaluation_.store));
      MOED_ASSIGN_OR_RETURN(question.widths, ChooseWidths(*store, widths_));
    }
    MOED_ASSIGN_OR_RETURN(const std::unique_ptr<LossEvaluator> evaluator, evaluation_.Open());
    question.experts = evaluator->experts();
    question.tolerable_loss = loss_percent_ / 100;
    question.confidence = confidence_percent_ / 100;
    if (question.confidence > 0 && evaluator->windows() < kLeastWindows) {
      return FailedPrecondition("the text is ", evaluator->windows(),
                                " windows long, too few to plan on half of it and confirm on ", "the other: at least ",
                                kLeastWindows, " are needed (--tokens, --window); --confidence 0 confirms ", "nothing");
    }
    MOED_ASSIGN_OR_RETURN(MeasuredLosses losses, output_.OpenLosses(*evaluator, question.confidence > 0 ? "half" : ""));
    absl::StatusOr<WidthsPlan> plan = Measure(question, *evaluator, losses);
    if (!plan.ok()) return absl::IsOutOfRange(plan.status()) ? plan.status() : output_.Kept(plan.status());
    MOED_RETURN_IF_ERROR(WriteWidthsFile(output_.path, question, *plan, *evaluator));
    PrintPlan(question, *plan, BytesOf(*plan, evaluator->store().description()), output_.path);
    return losses.Remove();
  }

 private:
  static absl::StatusOr<WidthsPlan> Measure(const WidthsQuestion& question, LossEvaluator& evaluator, MeasuredLosses& losses) {
    const auto total = static_cast<uint64_t>(MostMeasurements(question));
    Progress progress("measuring", total, std::min<uint64_t>(losses.size(), total), stderr, Clock::Real(), CountText);
    const auto nats_of = [&](const std::vector<Precision>& precisions) -> absl::StatusOr<double> {
      const uint64_t configuration = Checksum(std::as_bytes(std::span(precisions)));
      if (const std::optional<double> known = losses.Find(configuration)) return *known;
      AssignedPrecisions rule(evaluator.store().description(), precisions);
      MOED_ASSIGN_OR_RETURN(const auto pieces, evaluator.LossOfWindows(0, question.confidence > 0 ? 2 : 1, rule, Interrupted));
      const double nats = pieces.Mean();
      MOED_RETURN_IF_ERROR(losses.Add(configuration, nats));
      progress.Update(losses.size());
      return nats;
    };
    absl::StatusOr<WidthsPlan> plan = SearchWidths(question, nats_of);
    absl::Status confirmed;
    if (plan.ok() && question.confidence > 0) {
      confirmed = ConfirmWidths(
          question, nats_of,
          [&](const std::vector<Precision>& precisions, double confidence) { return Confirm(evaluator, precisions, confidence); },
          *plan);
    }
    progress.Break();
    MOED_RETURN_IF_ERROR(confirmed);
    return plan;
  }

  // On the windows between those that are planned on.
  static absl::StatusOr<ConfirmedLoss> Confirm(LossEvaluator& evaluator, const std::vector<Precision>& precisions,
                                               double confidence) {
    const StoreDescription& store = evaluator.store().description();
    AssignedPrecisions rule(store, precisions), reference(store, std::vector<Precision>(precisions.size(), kReferencePrecision));
    MOED_ASSIGN_OR_RETURN(LossEvaluator::Pieces pieces, evaluator.LossOfWindows(1, 2, rule, Interrupted));
    MOED_ASSIGN_OR_RETURN(const LossEvaluator::Pieces without, evaluator.LossOfWindows(1, 2, reference, Interrupted));
    std::ranges::transform(pieces.nats, without.nats, pieces.nats.begin(), std::minus<>());
    return BoundLoss(pieces.nats, pieces.tokens, confidence);
  }

  EvaluationFlags evaluation_;
  double loss_percent_ = 2;
  double confidence_percent_ = 95;
  std::vector<std::string> widths_;
  PlanOutput output_;
};

}  // namespace

std::unique_ptr<Planner> MakeWidthsPlanner() { return std::make_unique<WidthsPlanner>(); }

}  // namespace moed
