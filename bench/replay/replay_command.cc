// moe-bench replay: every policy side by side on recorded routing.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "bench/replay/belady.h"
#include "bench/replay/replay.h"
#include "bench/replay/workload.h"
#include "bench/subcommand.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/expert/learning/learned_state.h"
#include "core/expert/named_rows.h"
#include "core/expert/presets/preset.h"
#include "core/store/store.h"
#include "nlohmann/json.hpp"
#include "tools/terminal/amount.h"
#include "tools/terminal/progress.h"

namespace moed {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kBelady = "belady";
constexpr std::string_view kAuto = "auto";  // the preset's policy and predictor
constexpr std::string_view kNone = "none";

struct Options {
  WorkloadOptions workload;
  std::string policies = "all";
  std::string predictor{kNone};
  std::vector<double> budgets = {0.25};
  size_t sessions = 1;
  bool json = false;
  std::string learned_state, store;
  size_t table_bytes = kDefaultTableBytes;
};

// One name of --policy: an eviction policy and what reads ahead for it.
struct Method {
  std::string name;
  std::string policy;
  std::string predictor;
  size_t table_bytes = kDefaultTableBytes;
  std::optional<LearnedFile> learned;  // where what it learned is kept
};

struct Figures {
  std::string name;
  ReplayResult on_demand;
  ReplayResult ahead;  // the same result where the method reads nothing ahead
};

std::vector<std::string> KnownMethods() {
  std::vector<std::string> names;
  for (const PolicyRow& row : Policies()) {
    if (row.mask.empty()) names.emplace_back(row.name);  // no router, no mask
  }
  names.emplace_back(kBelady);
  names.emplace_back(kAuto);
  return names;
}

absl::StatusOr<std::vector<Method>> ParseMethods(const Options& options) {
  const std::vector<std::string> known = KnownMethods();
  std::vector<std::string> wanted = absl::StrSplit(options.policies, ',');
  if (options.policies == "all") wanted = known;
  std::vector<Method> methods;
  for (const std::string& name : wanted) {
    const auto found = std::ranges::find(known, name);
    if (found == known.end()) {
      return InvalidArgument("--policy: unknown policy \"", name, "\"; known are: all, ", absl::StrJoin(known, ", "));
    }
    if (name == kAuto) {
      MOED_ASSIGN_OR_RETURN(const PresetRow* preset, FindRow(Presets(), "preset", kAuto));
      methods.push_back({name, std::string(preset->policy), std::string(preset->predictor), options.table_bytes});
    } else {
      methods.push_back({name, *found, options.predictor, options.table_bytes});
    }
  }
  return methods;
}

// As a daemon of --store has it that learns with these parts.
absl::Status KeepLearned(const Options& options, std::vector<Method>& methods) {
  if (options.learned_state.empty()) return absl::OkStatus();
  if (methods.size() != 1 || options.budgets.size() != 1 || methods.front().policy == kBelady) {
    return InvalidArgument("--learned-state is of one policy of the daemon's at one budget");
  }
  Method& method = methods.front();
  MOED_ASSIGN_OR_RETURN(const auto store, StoreReader::Open(options.store));
  MOED_ASSIGN_OR_RETURN(const PresetSetup preset, ChoosePreset({.policy = method.policy, .predictor = method.predictor}, *store));
  method.learned = LearnedFile{options.learned_state, store->model_hash(), LearnersOf(preset)};
  return absl::OkStatus();
}

struct Cache {
  uint64_t slots = 0;
  size_t sessions = 1;  // that share it and steps
};

absl::StatusOr<ReplayResult> Run(const Workload& work, const Method& method, std::string_view predictor_name,
                                 const Cache& cache) {
  const std::vector<const RoutingTrace*> traces = work.Traces();
  size_t total = 0;
  for (const RoutingTrace* trace : traces) total += trace->replayed_tokens();
  Progress progress(StrCat(method.name, ", predictor ", predictor_name, ": tokens"), total, 0, stderr, Clock::Real(), CountText);
  const auto show = [&progress](size_t tokens) { progress.Update(tokens); };
  ReplaySetup setup{
      .store = work.store.get(), .traces = traces, .slots = cache.slots, .at_once = cache.sessions, .times = work.times};
  setup.predictor = predictor_name;
  setup.table_bytes = method.table_bytes;
  if (method.learned && predictor_name == method.predictor) setup.learned = &*method.learned;
  setup.progress = show;
  if (method.policy != kBelady) setup.policy = method.policy;
  absl::StatusOr<ReplayResult> result =
      Replay(setup, method.policy == kBelady ? MakeBeladyPolicy(traces, cache.sessions) : nullptr);
  progress.Break();
  return result;
}

absl::StatusOr<Figures> Measure(const Workload& work, const Method& method, const Cache& cache) {
  Figures figures{.name = method.name};
  MOED_ASSIGN_OR_RETURN(figures.on_demand, Run(work, method, kNone, cache));
  figures.ahead = figures.on_demand;
  if (method.predictor != kNone) {
    MOED_ASSIGN_OR_RETURN(figures.ahead, Run(work, method, method.predictor, cache));
  }
  const double compute = work.times.layer_seconds * static_cast<double>(work.trace.shape.layers.size());
  std::fprintf(stderr, "%-12s hit %.4f  ready %.4f  reads/token %.2f (%.3f of on demand)  time/compute %.3f -> %.3f\n",
               method.name.c_str(), figures.on_demand.ready_ratio(), figures.ahead.ready_ratio(), figures.ahead.reads_per_token(),
               static_cast<double>(figures.ahead.reads) / static_cast<double>(figures.on_demand.reads),
               figures.on_demand.seconds / compute / static_cast<double>(figures.on_demand.steps),
               figures.ahead.seconds / compute / static_cast<double>(figures.ahead.steps));
  return figures;
}

Json ToJson(const Workload& work, double budget, const std::vector<Figures>& all) {
  Json policies = Json::array();
  for (const Figures& figures : all) {
    policies.push_back({{"name", figures.name},
                        {"steps", figures.on_demand.steps},
                        {"hit_ratio", figures.on_demand.ready_ratio()},
                        {"ready_ratio", figures.ahead.ready_ratio()},
                        {"bytes_per_token", figures.ahead.reads_per_token() * static_cast<double>(work.expert_bytes)}});
  }
  return {{"budget", budget}, {"policies", policies}};
}

void PrintTable(const Workload& work, double budget, uint64_t slots, const std::vector<Figures>& all) {
  std::printf("%g of %zu experts (%llu), %zu tokens in %llu steps\n%-14s %9s %11s %15s\n", budget, work.experts(),
              static_cast<unsigned long long>(slots), work.trace.replayed_tokens(),
              static_cast<unsigned long long>(all.front().on_demand.steps), "policy", "hit_ratio", "ready_ratio",
              "bytes_per_token");
  for (const Figures& figures : all) {
    std::printf("%-14s %9.4f %11.4f %15.0f\n", figures.name.c_str(), figures.on_demand.ready_ratio(), figures.ahead.ready_ratio(),
                figures.ahead.reads_per_token() * static_cast<double>(work.expert_bytes));
  }
}

absl::Status RunReplay(const Options& options) {
  MOED_ASSIGN_OR_RETURN(std::vector<Method> methods, ParseMethods(options));
  MOED_RETURN_IF_ERROR(KeepLearned(options, methods));
  MOED_ASSIGN_OR_RETURN(const Workload work, PrepareWorkload(options.workload));
  Json results = Json::array();
  for (const double budget : options.budgets) {
    MOED_ASSIGN_OR_RETURN(const uint64_t slots, work.Slots(budget));
    std::vector<Figures> all;
    for (const Method& method : methods) {
      MOED_ASSIGN_OR_RETURN(all.emplace_back(), Measure(work, method, {slots, options.sessions}));
    }
    results.push_back(ToJson(work, budget, all));
    if (!options.json) PrintTable(work, budget, slots, all);
  }
  if (options.json) std::printf("%s\n", (results.size() == 1 ? results[0] : results).dump().c_str());
  return absl::OkStatus();
}

}  // namespace

std::function<absl::Status()> AddReplay(CLI::App& app) {
  auto options = std::make_shared<Options>();
  AddWorkloadOptions(app, options->workload);
  app.add_option("--policy", options->policies, "all, or names separated by commas: " + absl::StrJoin(KnownMethods(), ", "));
  app.add_option("--predictor", options->predictor, "what reads ahead for every policy but auto");
  app.add_option("--budget", options->budgets, "experts that the cache holds, as shares of all; separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--table-bytes", options->table_bytes, "of what is learned of tokens")->capture_default_str();
  app.add_option("--sessions", options->sessions, "sequences that share steps, the next ones begin when all have ended")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  auto* store = app.add_option("--store", options->store, "packed model whose daemon goes on with --learned-state");
  app.add_option("--learned-state", options->learned_state,
                 "where what policy and predictor learned is left, for moed --learned-state")
      ->needs(store);
  app.add_flag("--json", options->json, "figures as JSON");
  return [options] { return RunReplay(*options); };
}

}  // namespace moed
