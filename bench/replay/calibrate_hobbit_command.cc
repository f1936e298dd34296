// moe-bench calibrate-hobbit: the weights of HOBBIT's eviction that cost least on recorded routing.
#include <cstdio>
#include <limits>
#include <set>
#include <string>
#include <tuple>

#include "absl/strings/str_format.h"
#include "bench/replay/workload.h"
#include "bench/subcommand.h"
#include "core/base/status.h"
#include "core/expert/policies/hobbit.h"
#include "nlohmann/json.hpp"

namespace moed {
namespace {

// A trace tells no precisions, so every miss costs a read at the high one (the paper's penalty 1), and uses at high precision are
// all uses: the two frequencies share one weight in halves.
constexpr int kSteps = 20;       // weights are multiples of 1 / kSteps
constexpr int kCoarseSteps = 5;  // of the first look at the whole simplex

struct Options {
  WorkloadOptions workload;
  double budget = 0.25;
  bool json = false;
};

// In 1 / kSteps; the layer distance has the rest.
struct Point {
  int recency = 0;
  int frequency = 0;
  int distance() const { return kSteps - recency - frequency; }
  bool inside() const { return recency >= 0 && frequency >= 0 && distance() >= 0; }
  HobbitWeights weights() const {
    const double unit = 1.0 / kSteps;
    return {recency * unit, frequency * unit / 2, frequency * unit / 2, distance() * unit};
  }
};

class Search {
 public:
  Search(const Workload& work, uint64_t slots) : work_(work), slots_(slots) {}

  absl::Status Run() {
    for (int recency = 0; recency <= kSteps; recency += kCoarseSteps) {
      for (int frequency = 0; recency + frequency <= kSteps; frequency += kCoarseSteps) {
        MOED_RETURN_IF_ERROR(Try({recency, frequency}));
      }
    }
    for (int step = kCoarseSteps / 2; step >= 1; step /= 2) {
      for (Point around{-1, -1}; std::tie(around.recency, around.frequency) != std::tie(best_.recency, best_.frequency);) {
        around = best_;
        for (const auto& [recency, frequency] : {std::pair{-1, 0}, {1, 0}, {0, -1}, {0, 1}, {1, -1}, {-1, 1}}) {
          MOED_RETURN_IF_ERROR(Try({around.recency + step * recency, around.frequency + step * frequency}));
        }
      }
    }
    return absl::OkStatus();
  }

  const Point& best() const { return best_; }
  double penalty() const { return penalty_; }

 private:
  absl::Status Try(const Point& point) {
    if (!point.inside() || !tried_.insert({point.recency, point.frequency}).second) return absl::OkStatus();
    const HobbitWeights weights = point.weights();
    MOED_ASSIGN_OR_RETURN(const PartOptions options, PartOptions::Parse(absl::StrFormat(
                                                         "hobbit-lru=%.17g,hobbit-lfu=%.17g,hobbit-lhu=%.17g,hobbit-fld=%.17g",
                                                         weights.lru, weights.lfu, weights.lhu, weights.fld)));
    const std::vector<const RoutingTrace*> traces = work_.Traces();
    MOED_ASSIGN_OR_RETURN(const ReplayResult result, Replay({.store = work_.store.get(),
                                                             .traces = traces,
                                                             .slots = slots_,
                                                             .times = work_.times,
                                                             .policy = "hobbit",
                                                             .predictor = "none",
                                                             .options = options}));
    const double penalty = 1 - result.ready_ratio();
    std::fprintf(stderr, "%zu: lru %.2f lfu %.3f lhu %.3f fld %.2f: miss penalty %.4f a lookup\n", tried_.size(), weights.lru,
                 weights.lfu, weights.lhu, weights.fld, penalty);
    if (penalty < penalty_) {
      penalty_ = penalty;
      best_ = point;
    }
    return absl::OkStatus();
  }

  const Workload& work_;
  const uint64_t slots_;
  std::set<std::pair<int, int>> tried_;
  Point best_;
  double penalty_ = std::numeric_limits<double>::infinity();
};

absl::Status Calibrate(const Options& options) {
  MOED_ASSIGN_OR_RETURN(const Workload work, PrepareWorkload(options.workload));
  MOED_ASSIGN_OR_RETURN(const uint64_t slots, work.Slots(options.budget));
  Search search(work, slots);
  MOED_RETURN_IF_ERROR(search.Run());
  const HobbitWeights best = search.best().weights();
  if (options.json) {
    const nlohmann::ordered_json json = {{"budget", options.budget}, {"lru", best.lru}, {"lfu", best.lfu},
                                         {"lhu", best.lhu},          {"fld", best.fld}, {"miss_penalty", search.penalty()}};
    std::printf("%s\n", json.dump().c_str());
  } else {
    std::printf("lru %.3f lfu %.3f lhu %.3f fld %.3f: miss penalty %.4f a lookup\n", best.lru, best.lfu, best.lhu, best.fld,
                search.penalty());
  }
  return absl::OkStatus();
}

}  // namespace

std::function<absl::Status()> AddCalibrateHobbit(CLI::App& app) {
  auto options = std::make_shared<Options>();
  AddWorkloadOptions(app, options->workload);
  app.add_option("--budget", options->budget, "experts that the cache holds, as a share of all")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_flag("--json", options->json, "the weights as JSON");
  return [options] { return Calibrate(*options); };
}

}  // namespace moed
