// moe-bench calibrate-hobbit: thresholds and weights of HOBBIT on recorded routing.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "bench/replay/workload.h"
#include "bench/subcommand.h"
#include "core/base/status.h"
#include "core/expert/policies/hobbit_calibration.h"
#include "nlohmann/json.hpp"

namespace moed {
namespace {

constexpr double kLowBytes = 0.25;  // of the paper's pairs, float16 with INT4 and INT8 with INT2

struct Options {
  WorkloadOptions workload;
  double budget = 0.25;
  double low_bytes = kLowBytes;
  HobbitSplit split;
  bool json = false;
};

// The gate weights that a trace has; of `trace` alone.
HobbitRouting ScoresOf(const RoutingTrace& trace) {
  HobbitRouting routing{static_cast<int>(trace.shape.layers.size()), trace.shape.top_k};
  const auto top_k = static_cast<size_t>(trace.shape.top_k);
  std::vector<int32_t> experts(top_k);
  std::vector<float> weights(top_k);
  for (const TraceSequence& sequence : trace.sequences) {
    for (size_t token = sequence.first; token < sequence.first + sequence.tokens; ++token) {
      for (int layer = 0; layer < routing.layers; ++layer) {
        const size_t at = trace.At(token, layer);
        for (size_t slot = 0; slot < top_k; ++slot) {
          experts[slot] = trace.experts[at + slot];
          weights[slot] = static_cast<float>(trace.probabilities[at + slot]);
        }
        AddScored(experts, weights, routing);
      }
    }
    routing.sequence_ends.push_back(routing.tokens());
  }
  return routing;
}

std::string Text(const HobbitTuning& tuning) {
  const auto& [lru, lfu, lhu, fld] = tuning.weights;
  return absl::StrFormat("lru %.2f lfu %.2f lhu %.2f fld %.2f, %.0f %% of the cache high", lru, lfu, lhu, fld,
                         tuning.high_cache * 100);
}

absl::Status Calibrate(const Options& options) {
  if (options.split.high + options.split.low > 1 + 1e-9) {
    return InvalidArgument("--high ", options.split.high, " and --low ", options.split.low, " sum to more than 1");
  }
  if (!options.workload.train_dir.empty())
    return InvalidArgument("--train-dir: nothing here learns from a trace before the other");
  MOED_ASSIGN_OR_RETURN(const Workload work, PrepareWorkload(options.workload));
  MOED_ASSIGN_OR_RETURN(const uint64_t slots, work.Slots(options.budget));
  const HobbitRouting routing = ScoresOf(work.trace);
  if (routing.choices.empty()) return InvalidArgument("--trace-dir ", options.workload.trace_dir, ": has no tokens");
  const HobbitThresholds thresholds = ThresholdsOfSplit(routing, options.split);
  const HobbitSplit split = SplitOfThresholds(routing, thresholds);
  const uint64_t record_bytes[] = {work.expert_bytes,
                                   static_cast<uint64_t>(options.low_bytes * static_cast<double>(work.expert_bytes))};
  const ExpertModelShape model{.moe_layers = work.trace.shape.layers,
                               .experts_per_layer = work.trace.shape.experts,
                               .top_k = work.trace.shape.top_k,
                               .precisions = 2,
                               .record_bytes = record_bytes,
                               .capacity_bytes = slots * work.expert_bytes};
  int tried = 0;
  MOED_ASSIGN_OR_RETURN(const HobbitFound found, SearchHobbitTuning([&](const HobbitTuning& at) -> absl::StatusOr<double> {
                          const double penalty = HobbitMissPenalty(routing, model, thresholds, at);
                          std::fprintf(stderr, "%d: %s: miss penalty %.4f a choice\n", ++tried, Text(at).c_str(), penalty);
                          return penalty;
                        }));
  const HobbitWeights& best = found.tuning.weights;
  if (options.json) {
    const nlohmann::ordered_json json = {{"budget", options.budget},
                                         {"t1", thresholds.high},
                                         {"t2", thresholds.low},
                                         {"high", split.high},
                                         {"low", split.low},
                                         {"lru", best.lru},
                                         {"lfu", best.lfu},
                                         {"lhu", best.lhu},
                                         {"fld", best.fld},
                                         {"high_cache", found.tuning.high_cache},
                                         {"miss_penalty", found.penalty}};
    std::printf("%s\n", json.dump().c_str());
  } else {
    std::printf("T1 %.4f T2 %.4f: %.1f %% high, %.1f %% low\n%s: miss penalty %.4f a choice\n", thresholds.high, thresholds.low,
                split.high * 100, split.low * 100, Text(found.tuning).c_str(), found.penalty);
  }
  return absl::OkStatus();
}

}  // namespace

std::function<absl::Status()> AddCalibrateHobbit(CLI::App& app) {
  auto options = std::make_shared<Options>();
  AddWorkloadOptions(app, options->workload);
  const auto share = [&app](const char* name, double& value, const char* help) {
    app.add_option(name, value, help)->check(CLI::Range(0.0, 1.0))->capture_default_str();
  };
  share("--budget", options->budget, "experts that the cache holds, as a share of all");
  share("--low-bytes", options->low_bytes, "of an expert at the low precision, by those at the high one: what missing it costs");
  share("--high", options->split.high, "share of a token's choices that T1 is to leave at the high precision; 1: all of them");
  share("--low", options->split.low, "share that T2 is to leave at the low precision; the rest is skipped");
  app.add_flag("--json", options->json, "thresholds, weights and the high cache's share as JSON");
  return [options] { return Calibrate(*options); };
}

}  // namespace moed
