#include "tools/plan/swapmoe_planner.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/byte_size.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/expert/swapmoe/slots.h"
#include "core/store/checksum.h"
#include "core/store/expert_norms.h"
#include "tools/plan/evaluation_flags.h"
#include "tools/plan/plan_output.h"
#include "tools/plan/swapmoe_file.h"
#include "tools/plan/swapmoe_genetic.h"
#include "tools/plan/swapmoe_mask.h"
#include "tools/plan/swapmoe_profile.h"
#include "tools/terminal/amount.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/progress.h"

namespace moed {
namespace {

struct Measured {
  MeasuredSlots at;
  std::string_view found_by;
};

// Losses of slots on one text, each measured once.
class SlotsLosses {
 public:
  SlotsLosses(LossEvaluator& evaluator, const std::vector<float>& norms, int window, double fade, MeasuredLosses losses,
              uint64_t total)
      : evaluator_(evaluator),
        experts_(evaluator.store().description().moe_layers, evaluator.spec().experts, 1),
        norms_(norms),
        window_(window),
        fade_(fade),
        losses_(std::move(losses)),
        progress_("measuring", total, std::min<uint64_t>(losses_.size(), total), stderr, Clock::Real(), CountText) {}

  absl::StatusOr<MeasuredSlots> At(SlotCounts slots) {
    const uint64_t configuration = Checksum(std::as_bytes(std::span(slots)));
    if (const std::optional<double> known = losses_.Find(configuration)) return MeasuredSlots{std::move(slots), *known};
    SwapMoePlanMask mask(experts_, evaluator_.spec().top_k, slots, norms_, window_, fade_);
    AssignedPrecisions rule(evaluator_.store().description(), std::vector<Precision>(static_cast<size_t>(evaluator_.experts())));
    MOED_ASSIGN_OR_RETURN(const double nats, evaluator_.Loss(rule, &mask, Interrupted));
    MOED_RETURN_IF_ERROR(losses_.Add(configuration, nats));
    progress_.Update(losses_.size());
    return MeasuredSlots{std::move(slots), nats};
  }
  absl::Status End() {
    progress_.Break();
    return losses_.Remove();
  }
  void Break() { progress_.Break(); }

 private:
  LossEvaluator& evaluator_;
  const ExpertIndex experts_;
  const std::vector<float>& norms_;
  const int window_;
  const double fade_;
  MeasuredLosses losses_;
  Progress progress_;
};

class SlotsPlanner final : public Planner {
 public:
  void DefineFlags(CLI::App& command) override {
    evaluation_.Define(command);
    const auto number = [&command](const char* name, auto& value, auto low, auto high, const char* help) {
      command.add_option(name, value, help)->check(CLI::Range(low, high))->capture_default_str();
    };
    command.add_option("--budget", budget_, "memory for experts, the spare slot included: \"cache\" in the daemon's memory plan")
        ->required()
        ->option_text("BYTES");
    number("--allocations", allocations_, 2, 1 << 20, "random allocations that the accuracy model is fitted to");
    number("--held-out", held_out_, 0, 1 << 20, "further ones that its rank correlation is measured on");
    number("--update-tokens", window_, 1, 1 << 20, "tokens between two choices of the experts, while measuring");
    number("--fade", fade_, 0.0, 1.0, "what the importance of one window counts in the next");
    number("--model-width", accuracy_.hidden, 1, 1024, "hidden units of the accuracy model");
    number("--model-steps", accuracy_.steps, 1, 1 << 20, "steps of its training");
    number("--rounds", rounds_, 1, 1000, "searches, each with what the one before found measured and learned");
    number("--population", genetic_.population, 1, 1 << 16, "of the genetic search");
    number("--mutation", genetic_.mutation, 0.0, 1.0, "chance of a mutant");
    number("--crossover", genetic_.crossover, 0.0, 1.0, "chance of a child of two");
    number("--generations", genetic_.generations, 0, 1 << 24, "of the genetic search");
    number("--latency-weight", latency_weight_, 0.0, 1e6,
           "nats a token that the computation of all of a token's experts is worth");
    number("--seed", seed_, uint64_t{0}, uint64_t{1} << 62, "of everything random");
    output_.Define(command, ".slots.json");
  }

  absl::Status Run() override {
    MOED_RETURN_IF_ERROR(output_.Choose(evaluation_.store));
    MOED_ASSIGN_OR_RETURN(const std::unique_ptr<StoreReader> store, StoreReader::Open(evaluation_.store));
    SlotsReport report;
    report.window = window_;
    MOED_ASSIGN_OR_RETURN(report.budget_bytes, ParseBytes(budget_));
    MOED_RETURN_IF_ERROR(SetQuestion(*store, report.budget_bytes));
    MOED_ASSIGN_OR_RETURN(const std::unique_ptr<LossEvaluator> evaluator, evaluation_.Open());
    MOED_ASSIGN_OR_RETURN(const std::vector<float> norms, Norms(*store));
    report.scored_tokens = evaluator->scored_tokens();
    report.top_k = top_k_ = evaluator->spec().top_k;
    MOED_ASSIGN_OR_RETURN(SlotsLosses losses, OpenLosses(*evaluator, norms));
    if (const absl::Status status = Plan(losses, report); !status.ok()) {
      losses.Break();
      return output_.Kept(status);
    }
    const int threads = evaluation_.threads > 0 ? evaluation_.threads : static_cast<int>(std::thread::hardware_concurrency());
    MOED_ASSIGN_OR_RETURN(report.profile, ProfileExperts(*store, std::max(threads, 1)));
    MOED_RETURN_IF_ERROR(WriteSlotsFile(output_.path, *store, report, norms));
    MOED_RETURN_IF_ERROR(losses.End());
    Print(report, output_.path);
    return absl::OkStatus();
  }

 private:
  absl::Status SetQuestion(const StoreReader& store, uint64_t budget_bytes) {
    const StoreDescription& description = store.description();
    const auto layers = static_cast<int>(description.moe_layers.size());
    const uint64_t records = budget_bytes / store.largest_expert_bytes(kReferencePrecision);
    if (records < static_cast<uint64_t>(layers) + kSpareSlots) {
      const uint64_t least = (static_cast<uint64_t>(layers) + kSpareSlots) * store.largest_expert_bytes(kReferencePrecision);
      return absl::OutOfRangeError(StrCat("--budget ", budget_, " holds ", records, " experts; one for each of ", layers,
                                          " layers and a spare one need ", least, " bytes (", FormatBytes(least), ")"));
    }
    const uint64_t most = static_cast<uint64_t>(layers) * static_cast<uint64_t>(description.experts_per_layer);
    question_ = {layers, description.experts_per_layer, static_cast<int>(std::min(records - kSpareSlots, most))};
    genetic_.seed = seed_;
    accuracy_.seed = seed_;
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<float>> Norms(const StoreReader& store) const {
    if (store.FindTensor(kExpertNorms).ok()) return ReadExpertNorms(store);
    const auto experts = static_cast<uint64_t>(question_.layers) * static_cast<uint64_t>(question_.experts);
    Progress progress("norms of experts:", experts, 0, stderr, Clock::Real(), CountText);
    auto norms = ExpertNorms(store, [&](uint64_t done) {
      progress.Update(done);
      return !Interrupted();
    });
    progress.Break();
    return norms;
  }

  absl::StatusOr<SlotsLosses> OpenLosses(LossEvaluator& evaluator, const std::vector<float>& norms) const {
    MOED_ASSIGN_OR_RETURN(MeasuredLosses losses, output_.OpenLosses(evaluator, StrCat(window_, "\n", fade_)));
    const auto total = static_cast<uint64_t>(allocations_ + held_out_ + rounds_ + 2);
    return SlotsLosses(evaluator, norms, window_, fade_, std::move(losses), total);
  }

  // From any division to nearly equal ones; every other one as large as the budget allows, the others smaller by up to a half.
  std::vector<SlotCounts> RandomAllocations(int count) const {
    SwapMoeRandom random(seed_ + 1);
    std::vector<SlotCounts> allocations;
    const int least = std::max(question_.layers, question_.budget / 2);
    for (int i = 0; i < count; ++i) {
      const int total = i % 2 == 0 ? question_.budget : least + random.Below(question_.budget - least + 1);
      allocations.push_back(RandomSlots(question_, total, random.Uniform(), random));
    }
    return allocations;
  }

  double Cost(const SlotCounts& slots, double nats) const {
    int computed = 0;
    for (const int here : slots) computed += std::min(here, top_k_);
    return nats + latency_weight_ * computed / (static_cast<double>(question_.layers) * top_k_);
  }

  absl::Status Plan(SlotsLosses& losses, SlotsReport& report) {
    MOED_ASSIGN_OR_RETURN(const MeasuredSlots all,
                          losses.At(SlotCounts(static_cast<size_t>(question_.layers), question_.experts)));
    MOED_ASSIGN_OR_RETURN(SlotCounts equal,
                          EqualSlots(question_.layers, question_.experts, static_cast<uint64_t>(question_.budget) + kSpareSlots));
    MOED_ASSIGN_OR_RETURN(report.equal, losses.At(std::move(equal)));
    report.all_nats = all.nats;
    std::vector<Measured> measured;
    for (SlotCounts& slots : RandomAllocations(allocations_ + held_out_)) {
      MOED_ASSIGN_OR_RETURN(MeasuredSlots at, losses.At(std::move(slots)));
      measured.push_back({std::move(at), "random slots"});
    }
    report.fitted = allocations_;
    report.held_out = held_out_;
    report.rank_correlation = HeldOutCorrelation(measured);
    measured.push_back({report.equal, "equal slots"});
    for (int round = 0; round < rounds_; ++round) {
      const AccuracyModel model = Fit(measured);
      SlotCounts found =
          SearchSlots(question_, genetic_, [&](const SlotCounts& slots) { return Cost(slots, model.Predict(slots)); });
      MOED_ASSIGN_OR_RETURN(MeasuredSlots at, losses.At(std::move(found)));
      measured.push_back({std::move(at), "search"});
    }
    const auto cost = [this](const Measured& one) { return Cost(one.at.slots, one.at.nats); };
    const auto best = std::ranges::min_element(measured, {}, cost);
    report.plan = best->at;
    report.found_by = best->found_by;
    report.predicted_nats = Fit(measured).Predict(best->at.slots);
    return absl::OkStatus();
  }

  AccuracyModel Fit(const std::vector<Measured>& measured) const {
    std::vector<MeasuredSlots> samples;
    for (const Measured& one : measured) samples.push_back(one.at);
    return {samples, question_.experts, accuracy_};
  }

  double HeldOutCorrelation(const std::vector<Measured>& measured) const {
    const auto split = measured.begin() + allocations_;
    const AccuracyModel model = Fit({measured.begin(), split});
    std::vector<double> predicted, true_ones;
    for (auto one = split; one != measured.end(); ++one) {
      predicted.push_back(model.Predict(one->at.slots));
      true_ones.push_back(one->at.nats);
    }
    return RankCorrelation(predicted, true_ones);
  }

  void Print(const SlotsReport& report, const std::string& out) const {
    const auto growth = [&](double nats) { return std::expm1(nats - report.all_nats) * 100; };
    std::string slots;
    for (const int here : report.plan.slots) slots += StrCat(slots.empty() ? "" : " ", here);
    std::printf("slots by layer: %s\n", slots.c_str());
    std::printf("perplexity over that of all experts: %+.2f %% (found by %s), equal slots %+.2f %%\n", growth(report.plan.nats),
                std::string(report.found_by).c_str(), growth(report.equal.nats));
    std::printf("rank correlation of predicted and measured losses on %d held-out allocations: %.2f\n", report.held_out,
                report.rank_correlation);
    std::printf("an expert: %s, load %.3f ms, compute %.3f ms\n%s\n", FormatBytes(report.profile.bytes).c_str(),
                report.profile.load_seconds * 1e3, report.profile.compute_seconds * 1e3, out.c_str());
  }

  EvaluationFlags evaluation_;
  std::string budget_;
  int allocations_ = 64;
  int held_out_ = 16;
  int window_ = 64;
  double fade_ = 0.5;
  int rounds_ = 12;
  double latency_weight_ = 0.01;
  uint64_t seed_ = 1;
  AccuracyOptions accuracy_;
  GeneticOptions genetic_;
  PlanOutput output_;

  SlotsQuestion question_;
  int top_k_ = 1;
};

}  // namespace

std::unique_ptr<Planner> MakeSlotsPlanner() { return std::make_unique<SlotsPlanner>(); }

}  // namespace moed
