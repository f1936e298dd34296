// moe-bench cost: the processor's time for policy and prediction, by a model's shape.
#include <chrono>
#include <cstdio>
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
  size_t tokens = 500;
  double budget = 0.25;
  std::string policy = "learned", predictor = "learned";
  double active_bytes = 0, memory_bytes_per_second = 0;
  bool json = false;
};

struct Bench {
  RoutingTrace trace;
  std::unique_ptr<StoreReader> store;
  uint64_t slots = 0;

  absl::StatusOr<double> MicrosecondsPerToken(const std::string& policy_name, const std::string& predictor_name) const {
    const RoutingTrace* traces[] = {&trace};
    const auto start = std::chrono::steady_clock::now();
    const ReplayTimes times{.read_seconds = 0.7e-3, .layer_seconds = 1e-3};
    MOED_RETURN_IF_ERROR(Replay({.store = store.get(),
                                 .traces = traces,
                                 .slots = slots,
                                 .times = times,
                                 .policy = policy_name,
                                 .predictor = predictor_name})
                             .status());
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    return took.count() / static_cast<double>(trace.tokens());
  }
};

absl::Status RunCost(const Options& options) {
  if (options.top_k > options.experts) {
    return InvalidArgument("--top-k ", options.top_k, ": at most --experts ", options.experts, " can be chosen");
  }
  if (options.layers > kMaxLayers) return InvalidArgument("--layers ", options.layers, ": allowed are 1 to ", kMaxLayers);
  RoutingShape shape{.top_k = options.top_k, .experts = options.experts};
  for (int layer = 0; layer < options.layers; ++layer) shape.layers.push_back(LayerId(layer));
  Bench bench{SyntheticTrace(shape, options.tokens), nullptr, 0};
  MOED_ASSIGN_OR_RETURN(bench.store, MakeEmptyStore(shape));
  bench.slots = static_cast<uint64_t>(options.budget * options.layers * options.experts);
  if (bench.slots < 1) return InvalidArgument("--budget ", options.budget, ": holds no expert");
  MOED_ASSIGN_OR_RETURN(const double plain, bench.MicrosecondsPerToken(kPlainPolicy, kPlainPredictor));
  MOED_ASSIGN_OR_RETURN(const double policy, bench.MicrosecondsPerToken(options.policy, kPlainPredictor));
  MOED_ASSIGN_OR_RETURN(const double both, bench.MicrosecondsPerToken(options.policy, options.predictor));
  nlohmann::ordered_json json{{"layers", options.layers},
                              {"experts", options.experts},
                              {"top_k", options.top_k},
                              {"cache_microseconds", plain},
                              {"policy_microseconds", policy - plain},
                              {"prediction_microseconds", both - policy}};
  if (options.active_bytes > 0 && options.memory_bytes_per_second > 0) {
    const double decode = options.active_bytes / options.memory_bytes_per_second * 1e6;
    json["decode_microseconds"] = decode;
    json["share_of_decode"] = (both - plain) / decode;
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
  app.add_option("--policy", options->policy, "whose cost over fifo is shown")->capture_default_str();
  app.add_option("--predictor", options->predictor, "whose cost over none is shown")->capture_default_str();
  app.add_option("--active-bytes", options->active_bytes, "of weights that a token reads")->check(CLI::PositiveNumber);
  app.add_option("--memory-bytes-per-second", options->memory_bytes_per_second,
                 "as machine_limits measures them; both together: the share of the decode time that memory sets")
      ->check(CLI::PositiveNumber);
  app.add_flag("--json", options->json, "figures as JSON");
  return [options] { return RunCost(*options); };
}

}  // namespace moed
