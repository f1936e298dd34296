// moe-bench cost: the processor's time for policy and prediction, by a model's shape.
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>

#include "bench/replay/empty_store.h"
#include "bench/replay/replay.h"
#include "bench/replay/synthetic_trace.h"
#include "bench/subcommand.h"
#include "core/base/status.h"
#include "core/store/layout.h"
#include "nlohmann/json.hpp"

namespace moed {
namespace {

// Bookkeeping without a choice: what the cache itself costs.
constexpr char kPlainPolicy[] = "fifo", kPlainPredictor[] = "none";

struct Options {
  int layers = 48, experts = 128, top_k = 8;
  size_t tokens = 500, sessions = 1;
  double budget = 0.25;
  size_t table_bytes = kDefaultTableBytes;
  std::string policy = "learned", predictor = "learned";
  double trunk_bytes = 0, expert_bytes = 0, memory_bytes_per_second = 0;
  bool json = false;
};

struct Cost {
  double microseconds = 0;  // of a step
  double experts = 0;       // that a step uses, each once
};

struct Bench {
  RoutingTrace trace;
  std::unique_ptr<StoreReader> store;
  uint64_t slots = 0;
  size_t table_bytes = 0;

  // Of the processor: what else the machine does is not in it.
  absl::StatusOr<Cost> CostOfAStep(const std::string& policy_name, const std::string& predictor_name) const {
    const RoutingTrace* traces[] = {&trace};
    const std::clock_t start = std::clock();
    const ReplayTimes times{.read_seconds = 0.7e-3, .layer_seconds = 1e-3};
    MOED_ASSIGN_OR_RETURN(const ReplayResult result, Replay({.store = store.get(),
                                                             .traces = traces,
                                                             .slots = slots,
                                                             .at_once = trace.sequences.size(),
                                                             .times = times,
                                                             .policy = policy_name,
                                                             .predictor = predictor_name,
                                                             .table_bytes = table_bytes}));
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    const auto steps = static_cast<double>(result.steps);
    return Cost{seconds * 1e6 / steps, static_cast<double>(result.experts) / steps};
  }
};

absl::Status RunCost(const Options& options) {
  if (options.top_k > options.experts) {
    return InvalidArgument("--top-k ", options.top_k, ": at most --experts ", options.experts, " can be chosen");
  }
  if (options.layers > kMaxLayers) return InvalidArgument("--layers ", options.layers, ": allowed are 1 to ", kMaxLayers);
  RoutingShape shape{.top_k = options.top_k, .experts = options.experts};
  for (int layer = 0; layer < options.layers; ++layer) shape.layers.push_back(LayerId(layer));
  Bench bench{SyntheticTrace(shape, options.tokens, options.sessions), nullptr, 0, options.table_bytes};
  MOED_ASSIGN_OR_RETURN(bench.store, MakeEmptyStore(shape));
  bench.slots = static_cast<uint64_t>(options.budget * options.layers * options.experts);
  if (bench.slots < 1) return InvalidArgument("--budget ", options.budget, ": holds no expert");
  MOED_ASSIGN_OR_RETURN(const Cost plain, bench.CostOfAStep(kPlainPolicy, kPlainPredictor));
  MOED_ASSIGN_OR_RETURN(const Cost policy, bench.CostOfAStep(options.policy, kPlainPredictor));
  MOED_ASSIGN_OR_RETURN(const Cost both, bench.CostOfAStep(options.policy, options.predictor));
  nlohmann::ordered_json json{{"layers", options.layers},
                              {"experts", options.experts},
                              {"top_k", options.top_k},
                              {"sessions", options.sessions},
                              {"cache_microseconds", plain.microseconds},
                              {"policy_microseconds", policy.microseconds - plain.microseconds},
                              {"prediction_microseconds", both.microseconds - policy.microseconds}};
  if (options.expert_bytes > 0 && options.memory_bytes_per_second > 0) {
    const double bytes = options.trunk_bytes + plain.experts * options.expert_bytes;
    const double step = bytes / options.memory_bytes_per_second * 1e6;
    json["step_bytes"] = bytes;
    json["step_microseconds"] = step;
    json["share_of_step"] = (both.microseconds - plain.microseconds) / step;
  }
  if (options.json) {
    std::printf("%s\n", json.dump().c_str());
    return absl::OkStatus();
  }
  for (const auto& [name, value] : json.items()) std::printf("%-24s %g\n", name.c_str(), value.get<double>());
  return absl::OkStatus();
}

}  // namespace

std::function<absl::Status()> AddCost(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("--layers", options->layers, "MoE layers")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--experts", options->experts, "of a layer")->check(CLI::Range(1, 65536))->capture_default_str();
  app.add_option("--top-k", options->top_k, "experts that a token uses in a layer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--tokens", options->tokens, "that are routed")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--budget", options->budget, "experts that the cache holds, as a share of all")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--table-bytes", options->table_bytes, "of the tables of policy and of predictor: a 128th of a memory budget")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--policy", options->policy, "whose cost over fifo is shown")->capture_default_str();
  app.add_option("--predictor", options->predictor, "whose cost over none is shown")->capture_default_str();
  app.add_option("--sessions", options->sessions, "that decode together: each routes so many tokens")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--trunk-bytes", options->trunk_bytes, "of weights outside the experts that a step reads")
      ->check(CLI::PositiveNumber);
  app.add_option("--expert-bytes", options->expert_bytes, "of one expert")->check(CLI::PositiveNumber);
  app.add_option("--memory-bytes-per-second", options->memory_bytes_per_second,
                 "as machine_limits measures them; with the bytes: the share of the time that memory takes for a step's weights")
      ->check(CLI::PositiveNumber);
  app.add_flag("--json", options->json, "figures as JSON");
  return [options] { return RunCost(*options); };
}

}  // namespace moed
