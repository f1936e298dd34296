// moe-bench fleet: several caches on recorded routing, with requests shared out at random or by topic.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/replay/fleet.h"
#include "bench/replay/replay.h"
#include "bench/replay/workload.h"
#include "bench/subcommand.h"
#include "core/base/status.h"
#include "core/expert/named_rows.h"
#include "core/expert/presets/preset.h"
#include "nlohmann/json.hpp"

namespace moed {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  WorkloadOptions workload;
  std::vector<size_t> boxes = {3, 30, 300};
  double budget = 0.25;
  size_t requests = 24;
  size_t at_once = 1;
  size_t simulated = 45;
  uint64_t seed = 1;
  std::string preset = "auto";
  bool json = false;
};

// Of the boxes that were simulated.
struct FleetFigures {
  size_t simulated = 0;
  uint64_t tokens = 0, lookups = 0, ready = 0, reads = 0;
  double seconds = 0;
  double tokens_per_second = 0;  // of one box, on average

  double ready_ratio() const { return static_cast<double>(ready) / static_cast<double>(lookups); }
  double reads_per_token() const { return static_cast<double>(reads) / static_cast<double>(tokens); }
};

absl::StatusOr<FleetFigures> Simulate(const Options& options, const Workload& work, size_t boxes, Balance balance) {
  MOED_ASSIGN_OR_RETURN(const PresetRow* preset, FindRow(Presets(), "preset", options.preset));
  MOED_ASSIGN_OR_RETURN(const uint64_t slots, work.Slots(options.budget));
  RoutingTrace warming = work.trace, measured = work.trace;
  FleetFigures sum;
  sum.simulated = std::min(boxes, options.simulated);
  for (size_t box = 0; box < sum.simulated; ++box) {
    MOED_ASSIGN_OR_RETURN(BoxRequests requests,
                          RequestsOfBox(work.trace.sequences, box, boxes, options.requests, balance, options.seed));
    warming.sequences = std::move(requests.warming);
    measured.sequences = std::move(requests.measured);
    const std::vector<const RoutingTrace*> traces = {&warming, &measured};
    ReplaySetup setup{
        .store = work.store.get(), .traces = traces, .slots = slots, .at_once = options.at_once, .times = work.times};
    setup.policy = preset->policy;
    setup.predictor = preset->predictor;
    MOED_ASSIGN_OR_RETURN(const ReplayResult result, Replay(setup));
    sum.tokens += result.tokens;
    sum.lookups += result.lookups;
    sum.ready += result.ready;
    sum.reads += result.reads;
    sum.seconds += result.seconds;
    std::fprintf(stderr, "%zu boxes, by %s: %zu of %zu\r", boxes, balance == Balance::kAny ? "chance" : "topic", box + 1,
                 sum.simulated);
  }
  std::fprintf(stderr, "\n");
  sum.tokens_per_second = static_cast<double>(sum.tokens) / sum.seconds;
  return sum;
}

Json ToJson(const Workload& work, size_t boxes, const char* balance, const FleetFigures& figures) {
  const double bytes = figures.reads_per_token() * static_cast<double>(work.expert_bytes);
  return {{"boxes", boxes},
          {"simulated", figures.simulated},
          {"balance", balance},
          {"ready_ratio", figures.ready_ratio()},
          {"bytes_per_token", bytes},
          {"tokens_per_second", figures.tokens_per_second * static_cast<double>(boxes)},
          {"bytes_per_second", bytes * figures.tokens_per_second * static_cast<double>(boxes)}};
}

absl::Status RunFleet(const Options& options) {
  MOED_ASSIGN_OR_RETURN(const Workload work, PrepareWorkload(options.workload));
  Json results = Json::array();
  for (const size_t boxes : options.boxes) {
    for (const auto& [balance, name] : {std::pair(Balance::kAny, "chance"), std::pair(Balance::kTopic, "topic")}) {
      MOED_ASSIGN_OR_RETURN(const FleetFigures figures, Simulate(options, work, boxes, balance));
      results.push_back(ToJson(work, boxes, name, figures));
    }
  }
  if (options.json) {
    std::printf("%s\n", results.dump().c_str());
    return absl::OkStatus();
  }
  std::printf("%6s %-8s %11s %15s %15s %15s\n", "boxes", "balance", "ready_ratio", "MB_per_token", "tokens_per_s",
              "GB_per_s_all");
  for (const Json& row : results) {
    std::printf("%6d %-8s %11.4f %15.1f %15.1f %15.2f\n", row["boxes"].get<int>(), row["balance"].get<std::string>().c_str(),
                row["ready_ratio"].get<double>(), row["bytes_per_token"].get<double>() / 1e6,
                row["tokens_per_second"].get<double>(), row["bytes_per_second"].get<double>() / 1e9);
  }
  return absl::OkStatus();
}

}  // namespace

std::function<absl::Status()> AddFleet(CLI::App& app) {
  auto options = std::make_shared<Options>();
  AddWorkloadOptions(app, options->workload);
  app.add_option("--boxes", options->boxes, "sizes of the fleet, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 100000));
  app.add_option("--budget", options->budget, "experts that each cache holds, as a share of all")->check(CLI::Range(0.0, 1.0));
  app.add_option("--requests", options->requests, "most sequences of a box, half of which warm its cache")
      ->check(CLI::Range(2, 1000000));
  app.add_option("--at-once", options->at_once, "sequences that a box computes at once")->check(CLI::Range(1, 1024));
  app.add_option("--simulated", options->simulated, "boxes of a fleet that are simulated; the others are like them")
      ->check(CLI::Range(1, 100000));
  app.add_option("--seed", options->seed, "of what is drawn")->capture_default_str();
  app.add_option("--preset", options->preset, "whose policy and predictor the boxes have")->capture_default_str();
  app.add_flag("--json", options->json, "figures as JSON");
  return [options] { return RunFleet(*options); };
}

}  // namespace moed
