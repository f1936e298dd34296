#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/command.h"
#include "client/flag_values.h"
#include "client/json_text.h"
#include "client/shown.h"
#include "core/base/byte_size.h"
#include "core/base/status.h"

namespace moed {
namespace {

struct InfoFlags {
  bool json = false;
};

const char* CacheText(const moe::v1::ServerInfo& server) {
  if (!server.has_cache()) return "no cache";
  return server.fills_cache() ? "cache filled while the disk is idle" : "cache filled on demand";
}

void PrintServer(const moe::v1::ServerInfo& server) {
  const auto shown = [](const std::string& text) { return LineOn(stdout, text); };
  absl::PrintF("moed %s (%s), up %.0f s%s\n", shown(server.version()), shown(server.build()), server.uptime_seconds(),
               server.draining() ? ", draining" : "");
  absl::PrintF("  compute %s on %d threads, reads by %s\n", shown(server.compute_backend()), server.threads(),
               shown(server.io_backend_reason()));
  absl::PrintF("  preset %s: policy %s, predictor %s, fidelity rule %s, router mask %s, %s; requests are served %s by default\n",
               shown(server.preset()), shown(server.policy()), shown(server.predictor()), shown(server.fidelity_rule()),
               shown(server.router_mask()), CacheText(server), shown(server.fidelity()));
  absl::PrintF("  %d requests at once, %d may wait; keys and values kept as %s; prefix cache %s; prompt lookup %s%s\n",
               server.max_sessions(), server.queue_capacity(), shown(server.kv_format()), shown(server.prefix_cache()),
               shown(server.prompt_lookup()), server.fast_matmul() ? "; fidelity fast-matmul is served" : "");
  std::printf("  memory budget %s:", FormatBytes(server.memory_budget_bytes()).c_str());
  for (const auto& part : server.memory()) absl::PrintF(" %s %s", shown(part.part()), FormatBytes(part.bytes()));
  std::printf("\n");
}

void PrintModel(const moe::v1::ModelInfo& model) {
  const auto shown = [](const std::string& text) { return LineOn(stdout, text); };
  const uint64_t experts = static_cast<uint64_t>(model.moe_layers()) * static_cast<uint64_t>(model.experts());
  const char* most = model.all_expert_bytes() == experts * model.expert_bytes() ? "" : "up to ";
  absl::PrintF("model %s, %s (%s)\n", shown(model.store_path()), shown(model.family()), shown(model.model_hash()));
  std::printf("  %d layers (%d with experts), hidden %d, %d heads (%d kv) of %d, vocabulary %d, context %d of %d\n",
              model.layers(), model.moe_layers(), model.hidden(), model.heads(), model.kv_heads(), model.head_dim(),
              model.vocabulary(), model.max_context(), model.model_context());
  absl::PrintF("  %d experts, %d a token, %s%s each as %s; %s of experts, %s of trunk (%s)\n", model.experts(), model.top_k(),
               most, FormatBytes(model.expert_bytes()), shown(absl::StrJoin(model.expert_formats(), ",")),
               FormatBytes(model.all_expert_bytes()), FormatBytes(model.trunk_bytes()), shown(model.trunk_format()));
  const std::string sampling = model.sampling_defaults().ShortDebugString();
  std::printf("  %s; sampling by default: %s\n", model.has_chat_template() ? "has a chat template" : "no chat template, no chat",
              sampling.empty() ? "nothing said" : sampling.c_str());
}

absl::Status RunInfo(const InfoFlags& flags, CommandContext& context) {
  MOED_ASSIGN_OR_RETURN(const moe::v1::ServerInfo server, context.client.GetServerInfo());
  const absl::StatusOr<moe::v1::ModelInfo> found = context.client.GetModelInfo();
  if (!found.ok() && !absl::IsUnavailable(found.status())) return found.status();
  if (flags.json) {
    const moe::v1::ModelInfo model = found.ok() ? *found : moe::v1::ModelInfo();
    std::printf("{\"server\":%s,\"model\":%s}\n", JsonText(server).c_str(), JsonText(model).c_str());
    return absl::OkStatus();
  }
  if (!server.lost_device().empty()) absl::PrintF("the device is lost: %s\n", LineOn(stdout, server.lost_device()));
  if (!found.ok()) {
    absl::PrintF("moed %s (%s), up %.0f s: %s\n", LineOn(stdout, server.version()), LineOn(stdout, server.build()),
                 server.uptime_seconds(), LineOn(stdout, server.model_state()));
    return absl::OkStatus();
  }
  PrintServer(server);
  PrintModel(*found);
  return absl::OkStatus();
}

// Milliseconds a step and the share of all steps' time, by part; what no part accounts for is "other".
void PrintBreakdown(const moe::v1::Stats& stats) {
  constexpr std::string_view kWhole = "step", kAfter = "hand out";
  moe::v1::StepPart whole, other;
  for (const auto& part : stats.step_parts()) {
    if (part.part() == kWhole) whole = part;
  }
  other = whole;
  other.set_part("other");
  std::printf("%-16s %14s %9s %14s %9s\n", "part", "prefill ms", "share", "decode ms", "share");
  const auto cell = [](const moe::v1::StepTime& part, const moe::v1::StepTime& step) {
    const double steps = static_cast<double>(std::max<uint64_t>(step.count(), 1));
    std::printf(" %14.3f %7.1f %%", 1e3 * part.seconds() / steps,
                step.seconds() > 0 ? 100 * part.seconds() / step.seconds() : 0.0);
  };
  const auto row = [&](const moe::v1::StepPart& part) {
    absl::PrintF("%-16s", LineOn(stdout, part.part()));
    cell(part.prefill(), whole.prefill());
    cell(part.decode(), whole.decode());
    std::printf("\n");
  };
  for (const auto& part : stats.step_parts()) {
    if (part.part() == kWhole) continue;
    row(part);
    if (part.part() == kAfter) continue;
    other.mutable_prefill()->set_seconds(other.prefill().seconds() - part.prefill().seconds());
    other.mutable_decode()->set_seconds(other.decode().seconds() - part.decode().seconds());
  }
  row(other);
  row(whole);
  std::printf("%-16s %14llu %9s %14llu\n", "steps", static_cast<unsigned long long>(whole.prefill().count()), "",
              static_cast<unsigned long long>(whole.decode().count()));
}

// The process may take so much beside its memory budget: the daemon's contract.
constexpr uint64_t kBesideBudgetBytes = 64 << 20;

struct StatsFlags {
  double window = 10;
  double interval = 1;
  int count = 0;
  bool json = false;
  bool breakdown = false;
};

void PrintStats(const moe::v1::Stats& s) {
  std::printf("last %.0f s    hit ratio %5.1f %%   read %s/s   %.1f tokens/s   TPOT %.2f ms\n", s.window_seconds(),
              100 * s.hit_ratio(), FormatBytes(static_cast<uint64_t>(s.read_bytes_per_second())).c_str(), s.tokens_per_second(),
              1e3 * s.mean_tpot_seconds());
  std::printf("now          running %d   waiting %d   sessions %d   cache %s of %s   process %s, at most budget %s + %s\n",
              s.running(), s.waiting(), s.sessions(), FormatBytes(s.cache_bytes()).c_str(),
              FormatBytes(s.cache_capacity_bytes()).c_str(), FormatBytes(s.resident_set_bytes()).c_str(),
              FormatBytes(s.memory_budget_bytes()).c_str(), FormatBytes(kBesideBudgetBytes).c_str());
  std::printf("since start  requests %llu\n", static_cast<unsigned long long>(s.requests()));
  std::printf("since load   prompt %llu   generated %llu   hits %llu   misses %llu   read %s   stalled %.2f s\n",
              static_cast<unsigned long long>(s.prompt_tokens()), static_cast<unsigned long long>(s.generated_tokens()),
              static_cast<unsigned long long>(s.expert_hits()), static_cast<unsigned long long>(s.expert_misses()),
              FormatBytes(s.bytes_read()).c_str(), s.stall_seconds());
}

void PrintDevice(const moe::v1::DeviceTier& device) {
  const auto count = [](uint64_t number) { return static_cast<unsigned long long>(number); };
  std::printf(
      "device       experts %s of %s   used there %llu   over the bus %llu   by the processor %llu   copied in %s, out %s\n",
      FormatBytes(device.bytes()).c_str(), FormatBytes(device.capacity_bytes()).c_str(), count(device.used_there()),
      count(device.used_over_the_bus()), count(device.used_by_processor()), FormatBytes(device.copied_to_device_bytes()).c_str(),
      FormatBytes(device.copied_to_host_bytes()).c_str());
}

void PrintPredictions(const moe::v1::Stats& s) {
  const auto phase = [](const char* name, const moe::v1::PhaseStats& counts) {
    const auto share = [&counts](uint64_t whole) {
      return whole > 0 ? 100.0 * static_cast<double>(counts.predictions_right()) / static_cast<double>(whole) : 0.0;
    };
    std::printf("   %s recall %.1f %% precision %.1f %%", name, share(counts.predictions_routed()),
                share(counts.predictions_guessed()));
  };
  std::printf("predictions");
  phase("prompts", s.prefill());
  phase("answers", s.decode());
  std::printf("   wasted %s   saved %.2f s of reading\n", FormatBytes(s.wasted_prefetch_bytes()).c_str(),
              s.prefetch_saved_seconds());
}

void PrintCache(const moe::v1::CacheState& state) {
  std::printf("%-6s %9s %12s %12s %9s %11s\n", "layer", "resident", "hits", "misses", "hit %", "stalled s");
  for (const auto& layer : state.layers()) {
    int resident = 0;
    for (int count : layer.resident()) resident += count;
    const double lookups = static_cast<double>(layer.hits() + layer.misses());
    std::printf("%-6d %9d %12llu %12llu %9.1f %11.3f\n", layer.layer(), resident, static_cast<unsigned long long>(layer.hits()),
                static_cast<unsigned long long>(layer.misses()),
                lookups > 0 ? 100.0 * static_cast<double>(layer.hits()) / lookups : 0.0, layer.stall_seconds());
  }
}

// Waits for the interval; false when Ctrl-C came.
bool WaitInterval(const Cancellation& cancellation, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (cancellation.cancelled()) return false;
    usleep(20'000);
  }
  return !cancellation.cancelled();
}

absl::Status RunStats(const StatsFlags& flags, CommandContext& context) {
  const bool terminal = isatty(STDOUT_FILENO) != 0 && !flags.json;
  // On a terminal the table refreshes until Ctrl-C; elsewhere it is printed once unless --count says more.
  const int turns = flags.count > 0 ? flags.count : terminal ? 0 : 1;
  for (int turn = 0; turns == 0 || turn < turns; ++turn) {
    if (turn > 0 && !WaitInterval(context.cancellation, flags.interval)) break;
    MOED_ASSIGN_OR_RETURN(const moe::v1::Stats stats, context.client.GetStats(flags.window));
    MOED_ASSIGN_OR_RETURN(const moe::v1::CacheState state, context.client.GetCacheState(0));
    if (flags.json) {
      std::printf("{\"stats\":%s,\"cache\":%s}\n", JsonText(stats).c_str(), JsonText(state).c_str());
    } else {
      const auto table = [&] { flags.breakdown ? PrintBreakdown(stats) : PrintCache(state); };
      // What is refreshed ends with the totals: a table of many layers would push them off the screen.
      const bool refreshed = terminal && turns != 1;
      if (refreshed) std::printf("\033[H\033[2J");
      if (refreshed) table();
      PrintStats(stats);
      if (stats.has_device()) PrintDevice(stats.device());
      if (stats.prefill().predictions_guessed() + stats.decode().predictions_guessed() > 0) PrintPredictions(stats);
      if (!refreshed) table();
    }
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace

CommandRun DefineInfo(CLI::App& app) {
  auto flags = std::make_shared<InfoFlags>();
  app.add_flag("--json", flags->json, "JSON: server, model");
  return [flags](CommandContext& context) { return RunInfo(*flags, context); };
}

CommandRun DefineStats(CLI::App& app) {
  auto flags = std::make_shared<StatsFlags>();
  app.add_option("--window", flags->window, "seconds that the rates cover")->transform(Between(1.0, 60.0))->capture_default_str();
  app.add_option("--interval", flags->interval, "seconds between refreshes")
      ->transform(Between(0.1, 3600.0))
      ->capture_default_str();
  app.add_option("--count", flags->count, "how many times (default: until Ctrl-C on a terminal, once elsewhere)")
      ->transform(AtLeast(1));
  app.add_flag("--json", flags->json, "one JSON object a line: stats, cache");
  app.add_flag("--breakdown", flags->breakdown,
               "where the engine's time went, in place of the cache: milliseconds a step, by part");
  return [flags](CommandContext& context) { return RunStats(*flags, context); };
}

CommandRun DefineHealth(CLI::App& app) {
  auto service = std::make_shared<std::string>();
  app.add_option("--service", *service, "service to ask for; default: the whole server");
  return [service](CommandContext& context) -> absl::Status {
    MOED_RETURN_IF_ERROR(context.client.CheckHealth(*service));
    std::printf("serving\n");
    return absl::OkStatus();
  };
}

}  // namespace moed
