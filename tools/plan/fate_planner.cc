#include "tools/plan/fate_planner.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/expert/fidelity/fate.h"
#include "core/expert/pack_command.h"
#include "core/store/checksum.h"
#include "nlohmann/json.hpp"
#include "tools/plan/evaluation_flags.h"
#include "tools/plan/fate_search.h"
#include "tools/plan/gate_recall.h"
#include "tools/plan/loss_evaluator.h"
#include "tools/plan/plan_output.h"
#include "tools/plan/plan_writer.h"
#include "tools/terminal/amount.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/progress.h"

namespace moed {
namespace {

constexpr double kLargestLossPercent = 1e6;

// A rule that finds nothing in memory, whatever there is: what it lowers at most.
class WithoutResidents final : public FidelityRule {
 public:
  explicit WithoutResidents(std::unique_ptr<FidelityRule> rule) : rule_(std::move(rule)) {}
  void Resolve(const LayerDemand& demand, std::span<Action> actions) override {
    const Nothing nothing;
    rule_->Resolve({demand.routing, demand.wanted, demand.positions, demand.phase, nothing, demand.prices}, actions);
  }

 private:
  class Nothing final : public ResidencyView {
   public:
    bool Resident(CachedKey) const override { return false; }
    bool Loading(CachedKey) const override { return false; }
  };
  std::unique_ptr<FidelityRule> rule_;
};

// By MoE layer; the first is never foreseen.
struct Recalls {
  std::vector<double> top_k;
  std::vector<double> widened;
};

// Everything that is measured, each thing once.
class FateMeasurements {
 public:
  FateMeasurements(LossEvaluator& evaluator, MeasuredLosses losses)
      : evaluator_(evaluator),
        losses_(std::move(losses)),
        progress_("measuring", kMostShares + 1, PassesDone(), stderr, Clock::Real(), CountText) {}

  // One pass over the text for the reference and the recalls.
  absl::StatusOr<Recalls> Reference() {
    const int layers = static_cast<int>(evaluator_.store().description().moe_layers.size());
    if (!Find("reference")) MOED_RETURN_IF_ERROR(MeasureReference());
    Recalls recalls;
    for (int layer = 0; layer < layers; ++layer) {
      recalls.top_k.push_back(*Find(StrCat("top-k ", layer)));
      recalls.widened.push_back(*Find(StrCat("widened ", layer)));
    }
    return recalls;
  }
  double reference_nats() const { return *Find("reference"); }

  absl::StatusOr<double> LossOfShare(int percent) {
    const std::string what = StrCat("share ", percent);
    if (!Find(what)) {
      MOED_ASSIGN_OR_RETURN(WithoutResidents rule, RuleOf(percent));
      MOED_ASSIGN_OR_RETURN(const double nats, evaluator_.Loss(rule, nullptr, Interrupted));
      MOED_RETURN_IF_ERROR(Add(what, nats));
      progress_.Update(PassesDone());
    }
    return std::expm1(*Find(what) - reference_nats());
  }

  void Break() { progress_.Break(); }
  absl::Status Remove() { return losses_.Remove(); }

 private:
  absl::StatusOr<WithoutResidents> RuleOf(int percent) const {
    PartContext context;
    context.model.precisions = static_cast<int>(evaluator_.store().description().precisions.size());
    PartOptions options;
    options.Set(kFatePrefillLow, StrCat(static_cast<double>(percent) / 100));
    MOED_ASSIGN_OR_RETURN(std::unique_ptr<FidelityRule> rule, MakeFateRule(context, options));
    return WithoutResidents(std::move(rule));
  }

  absl::Status MeasureReference() {
    const StoreDescription& store = evaluator_.store().description();
    AssignedPrecisions exact(store, std::vector<Precision>(static_cast<size_t>(evaluator_.experts()), kReferencePrecision));
    GateRecall recall(ExpertIndex(store.moe_layers, store.experts_per_layer, 1), evaluator_.spec().top_k, evaluator_.gate());
    MOED_ASSIGN_OR_RETURN(const double nats, evaluator_.Loss(exact, &recall, Interrupted));
    const auto share = [](uint64_t part, uint64_t whole) {
      return whole == 0 ? 0. : static_cast<double>(part) / static_cast<double>(whole);
    };
    for (size_t layer = 0; layer < recall.layers().size(); ++layer) {
      const GateRecall::Counts& counts = recall.layers()[layer];
      MOED_RETURN_IF_ERROR(Add(StrCat("top-k ", layer), share(counts.top_k, counts.chosen)));
      MOED_RETURN_IF_ERROR(Add(StrCat("widened ", layer), share(counts.widened, counts.chosen)));
    }
    MOED_RETURN_IF_ERROR(Add("reference", nats));  // last: where it is, the recalls are
    progress_.Update(PassesDone());
    return absl::OkStatus();
  }

  std::optional<double> Find(const std::string& what) const { return losses_.Find(Checksum(what)); }
  absl::Status Add(const std::string& what, double value) { return losses_.Add(Checksum(what), value); }
  uint64_t PassesDone() const {
    uint64_t passes = Find("reference") ? 1 : 0;
    for (int percent = 0; percent <= 100; ++percent) passes += Find(StrCat("share ", percent)) ? 1 : 0;
    return passes;
  }

  LossEvaluator& evaluator_;
  MeasuredLosses losses_;
  Progress progress_;
};

struct FateReport {
  Recalls recalls;
  int shallow_layers = 0;
  UnpopularShare share;
};

class FatePlanner final : public Planner {
 public:
  void DefineFlags(CLI::App& command) override {
    evaluation_.Define(command);
    command
        .add_option("--loss-percent", loss_percent_,
                    "a prompt's perplexity may grow by so much over that of the store's reference")
        ->check(CLI::Range(0.0, kLargestLossPercent))
        ->option_text("P (default: 1)");
    command
        .add_option("--shallow-recall", shallow_recall_,
                    "shallow layers end where the gate foresees so large a share of what it foresees in the median layer")
        ->check(CLI::Range(0.0, 1.0))
        ->option_text("SHARE (default: 0.95)");
    output_.Define(command, ".fate.json");
  }

  absl::Status Run() override {
    MOED_RETURN_IF_ERROR(output_.Choose(evaluation_.store));
    MOED_ASSIGN_OR_RETURN(const std::unique_ptr<LossEvaluator> evaluator, evaluation_.OpenDecoder());
    const StoreReader& store = evaluator->store();
    if (store.description().precisions.size() < 2) {
      return FailedPrecondition(store.path(), " holds experts at one precision, which leaves no lower one for a prompt; ",
                                PackCommand(store, FormatsWithOneMore(store)), " makes a store of two");
    }
    MOED_ASSIGN_OR_RETURN(MeasuredLosses losses, output_.OpenLosses(*evaluator, ""));
    FateMeasurements measurements(*evaluator, std::move(losses));
    FateReport report;
    const absl::Status status = Measure(measurements, report);
    measurements.Break();
    if (!status.ok()) return output_.Kept(status);
    MOED_RETURN_IF_ERROR(WritePlanFile(output_.path, ToJson(report, *evaluator, measurements.reference_nats())));
    Print(report, store);
    return measurements.Remove();
  }

 private:
  absl::Status Measure(FateMeasurements& measurements, FateReport& report) const {
    MOED_ASSIGN_OR_RETURN(report.recalls, measurements.Reference());
    report.shallow_layers = ShallowLayers(report.recalls.widened, shallow_recall_);
    MOED_ASSIGN_OR_RETURN(
        report.share, SearchUnpopularShare(loss_percent_ / 100, [&](int percent) { return measurements.LossOfShare(percent); }));
    return absl::OkStatus();
  }

  // Of what a prompt reads where nothing is in memory, in bytes of the reference precision.
  static double BytesOf(int percent, const StoreReader& store) {
    const auto bytes = [&](Precision precision) { return static_cast<double>(AllRecordBytes(store.description(), precision)); };
    const auto low = static_cast<Precision>(store.description().precisions.size() - 1);
    return 1 - percent / 100. * (1 - bytes(low) / bytes(kReferencePrecision));
  }

  nlohmann::ordered_json ToJson(const FateReport& report, const LossEvaluator& evaluator, double reference_nats) const {
    nlohmann::ordered_json json;
    json["model_hash"] = StrCat(absl::Hex(evaluator.store().model_hash(), absl::kZeroPad16));
    json["prefill_low"] = report.share.percent / 100.;
    json["shallow_layers"] = report.shallow_layers;
    auto& details = json["report"];
    details["tolerable_loss"] = loss_percent_ / 100;
    details["loss"] = report.share.losses.at(report.share.percent);
    details["reference_nats_per_token"] = reference_nats;
    details["scored_tokens"] = evaluator.scored_tokens();
    details["step_tokens"] = evaluator.WindowTokens(0);
    details["bytes_of_reference"] = BytesOf(report.share.percent, evaluator.store());
    for (const auto& [percent, loss] : report.share.losses) {
      details["shares"].push_back({{"share", percent / 100.}, {"loss", loss}});
    }
    details["shallow_recall"] = shallow_recall_;
    details["recall_top_k"] = report.recalls.top_k;
    details["recall_widened"] = report.recalls.widened;
    return json;
  }

  void Print(const FateReport& report, const StoreReader& store) const {
    std::printf("MoE layer  top-k recall  above the 75th percentile\n");
    for (size_t layer = 0; layer < report.recalls.widened.size(); ++layer) {
      const char* note = static_cast<int>(layer) < report.shallow_layers ? "  shallow" : "";
      if (layer == 0) {
        std::printf("%9d  %12s  %24s%s\n", 0, "-", "-", note);
      } else {
        std::printf("%9zu  %10.1f %%  %22.1f %%%s\n", layer, report.recalls.top_k[layer] * 100,
                    report.recalls.widened[layer] * 100, note);
      }
    }
    for (const auto& [percent, loss] : report.share.losses) {
      std::printf("%3d %% of a prompt's experts low: loss %9.4f %%\n", percent, loss * 100);
    }
    const int percent = report.share.percent;
    std::printf("p = %.2f: loss %.4f %% (allowed %.4f %%), %.1f %% of the bytes; L = %d of %zu layers\n%s\n", percent / 100.,
                report.share.losses.at(percent) * 100, loss_percent_, BytesOf(percent, store) * 100, report.shallow_layers,
                report.recalls.widened.size(), output_.path.c_str());
  }

  EvaluationFlags evaluation_;
  double loss_percent_ = 1;
  double shallow_recall_ = 0.95;
  PlanOutput output_;
};

}  // namespace

std::unique_ptr<Planner> MakeFatePlanner() { return std::make_unique<FatePlanner>(); }

}  // namespace moed
