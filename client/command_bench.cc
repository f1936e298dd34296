#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "client/command.h"
#include "client/flag_values.h"
#include "client/load_generator.h"
#include "core/base/status.h"

namespace moed {
namespace {

struct BenchFlags {
  GenerateFlags generate;
  LoadOptions load;
  std::string prompts_file;
  std::string prompt = "Once upon a time";
  bool json = false;
};

struct Work {
  std::vector<std::string> prompts;
  moe::v1::GenerateRequest form;
};

absl::StatusOr<std::vector<std::string>> Prompts(const BenchFlags& flags) {
  if (flags.prompts_file.empty()) return std::vector<std::string>{flags.prompt};
  MOED_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(flags.prompts_file));
  std::vector<std::string> prompts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) prompts.push_back(line);
  }
  if (prompts.empty()) return UsageError("'", flags.prompts_file, "' holds no prompt (one a line)");
  return prompts;
}

nlohmann::json PercentilesJson(const Percentiles& p) {
  return {{"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}, {"mean", p.mean}};
}

void PrintBenchJson(const LoadReport& report) {
  std::printf("%s\n", nlohmann::json{{"ok", report.ok},
                                     {"errors", report.errors},
                                     {"late", report.late},
                                     {"wall_seconds", report.wall_seconds},
                                     {"tokens", report.tokens},
                                     {"tokens_per_second", static_cast<double>(report.tokens) / report.wall_seconds},
                                     {"requests_per_second", report.ok / report.wall_seconds},
                                     {"ttft_seconds", PercentilesJson(report.ttft)},
                                     {"tpot_seconds", PercentilesJson(report.tpot)},
                                     {"latency_seconds", PercentilesJson(report.latency)}}
                          .dump()
                          .c_str());
}

void PrintTable(const LoadReport& report) {
  std::printf("%d requests answered in %.2f s, %lld tokens, %.1f tokens/s\n", report.ok, report.wall_seconds,
              static_cast<long long>(report.tokens), static_cast<double>(report.tokens) / report.wall_seconds);
  for (const auto& [code, count] : report.errors) std::printf("  %d ended with %s\n", count, code.c_str());
  if (report.late > 0) std::printf("  %d began late: raise --concurrency to keep the arrival rate\n", report.late);
  std::printf("%-10s %10s %10s %10s %10s\n", "ms", "p50", "p90", "p99", "mean");
  const auto row = [](const char* name, const Percentiles& p) {
    std::printf("%-10s %10.2f %10.2f %10.2f %10.2f\n", name, 1e3 * p.p50, 1e3 * p.p90, 1e3 * p.p99, 1e3 * p.mean);
  };
  row("TTFT", report.ttft);
  row("TPOT", report.tpot);
  row("latency", report.latency);
}

absl::Status Prepare(const BenchFlags& flags, Work& work) {
  MOED_ASSIGN_OR_RETURN(work.prompts, Prompts(flags));
  return flags.generate.Apply(work.form);
}

absl::Status RunBench(const BenchFlags& flags, const Work& work, CommandContext& context) {
  double wall_seconds = 0;
  const auto samples = GenerateLoad(context.client, work.prompts, work.form, flags.load, context.cancellation, &wall_seconds);
  const LoadReport report = Summarise(samples, wall_seconds);
  flags.json ? PrintBenchJson(report) : PrintTable(report);
  const size_t failed = samples.size() - static_cast<size_t>(report.ok);
  if (report.ok > 0 && failed > 0) return PartlyFailed(StrCat(failed, " of ", samples.size(), " requests failed"));
  if (report.ok > 0) return absl::OkStatus();
  for (const LoadSample& sample : samples) MOED_RETURN_IF_ERROR(sample.status);
  return absl::CancelledError("no request was answered");
}

}  // namespace

CommandRun DefineBench(CLI::App& app) {
  auto flags = std::make_shared<BenchFlags>();
  auto work = std::make_shared<Work>();
  app.add_option("--requests,-n", flags->load.requests, "how many")->transform(Between(1, 1'000'000))->capture_default_str();
  app.add_option("--concurrency,-c", flags->load.concurrency, "requests at once")
      ->transform(Between(1, 1024))
      ->capture_default_str();
  app.add_option("--rate", flags->load.arrivals_per_second,
                 "arrivals a second (open loop); --concurrency is then the most under way")
      ->transform(Positive());
  app.add_option("--arrival-seed", flags->load.seed, "seed of the gaps between arrivals")
      ->transform(AtLeast<uint64_t>(0))
      ->capture_default_str();
  app.add_option("--prompts", flags->prompts_file, "file with one prompt a line, used in turn");
  app.add_option("--prompt,-p", flags->prompt, "the prompt when no file is given")->capture_default_str();
  flags->generate.Define(app);
  app.add_flag("--json", flags->json,
               "JSON: ok, errors, tokens_per_second, and p50, p90, p99, mean of TTFT, TPOT, latency in seconds");
  return {[flags, work] { return Prepare(*flags, *work); },
          [flags, work](CommandContext& context) { return RunBench(*flags, *work, context); }};
}

}  // namespace moed
