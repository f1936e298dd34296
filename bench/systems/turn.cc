#include "bench/systems/turn.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "bench/systems/energy_meter.h"
#include "bench/systems/recorded.h"
#include "core/base/status.h"

namespace moed {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr double kStatsWindowSeconds = 1;
constexpr double kReplayedTokensPerSecond = 100;  // of learning from a record, about
constexpr int kLeastCountedTokens = 2;
constexpr double kMoreSeconds = 120;  // that a turn may take beyond its protocol's to count so many

double SecondsSince(SteadyClock::time_point from) { return std::chrono::duration<double>(SteadyClock::now() - from).count(); }

// Sums over the requests of a turn.
struct Sums {
  double prompt_tokens = 0, prefill_seconds = 0;
  double decode_tokens = 0, decode_seconds = 0, joules = 0;
  double bytes = 0, busy_seconds = 0, stall_seconds = 0;
  double prefill_hits = 0, prefill_lookups = 0, decode_hits = 0, decode_lookups = 0;
  std::vector<Played> played;
  double tokens = 0, lowered = 0, skipped = 0, masked = 0, mass_lost = 0;  // of all tokens, prompts included
};

// What a client sees of one answer: when its first counted token and its last one came, and the counters at these moments.
struct Watch {
  int skipped = 0;
  int tokens = 0;
  double first_token_seconds = 0;
  double counted_from = 0, counted_to = 0;
  int counted_first = 0;  // tokens there were when counting began
  moe::v1::Stats before, at_count, after;
  double joules = 0;
  moe::v1::RequestStats request;
  bool counting() const { return counted_first > 0; }
};

void AddPhase(const moe::v1::PhaseStats& from, const moe::v1::PhaseStats& to, double& hits, double& lookups) {
  const auto hit = static_cast<double>(to.expert_hits() - from.expert_hits());
  hits += hit;
  lookups += hit + static_cast<double>(to.expert_misses() - from.expert_misses());
}

void Add(const Watch& watch, int prompt_tokens, Sums& sums) {
  if (watch.tokens == 0) return;
  sums.prompt_tokens += prompt_tokens;
  sums.prefill_seconds += watch.first_token_seconds;
  AddPhase(watch.before.prefill(), watch.after.prefill(), sums.prefill_hits, sums.prefill_lookups);
  const double all = prompt_tokens + watch.tokens - 1;
  sums.tokens += all;
  sums.lowered += static_cast<double>(watch.request.experts_lowered());
  sums.skipped += static_cast<double>(watch.request.experts_skipped());
  sums.masked += static_cast<double>(watch.request.experts_masked());
  sums.mass_lost += watch.request.gate_mass_lost() * all;
  if (!watch.counting() || watch.tokens == watch.counted_first) return;
  sums.decode_tokens += watch.tokens - watch.counted_first;
  sums.decode_seconds += watch.counted_to - watch.counted_from;
  sums.joules += watch.joules;
  sums.bytes += static_cast<double>(watch.after.bytes_read() - watch.at_count.bytes_read());
  sums.busy_seconds += watch.after.read_busy_seconds() - watch.at_count.read_busy_seconds();
  sums.stall_seconds += watch.after.decode().stall_seconds() - watch.at_count.decode().stall_seconds();
  AddPhase(watch.at_count.decode(), watch.after.decode(), sums.decode_hits, sums.decode_lookups);
}

moe::v1::GenerateRequest MakeRequest(const Contender& contender, const std::vector<int>& prompt, int new_tokens, int seed,
                                     double seconds) {
  moe::v1::GenerateRequest request;
  for (int id : prompt) request.mutable_token_ids()->add_ids(id);
  // Sampled: greedy answers of small models run in circles and want the same few experts.
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(static_cast<uint64_t>(seed));
  request.mutable_stopping()->set_max_new_tokens(new_tokens);
  request.mutable_stopping()->set_ignore_eos(true);
  auto* limit = request.mutable_stopping()->mutable_time_limit();
  limit->set_seconds(static_cast<int64_t>(seconds));
  limit->set_nanos(static_cast<int32_t>((seconds - static_cast<double>(limit->seconds())) * 1e9));
  if (contender.fidelity) *request.mutable_fidelity() = *contender.fidelity;
  return request;
}

// Counters are read at the first counted token and at the end, so they cover the same time as the rate.
absl::StatusOr<Watch> Ask(Client& client, const moe::v1::GenerateRequest& request, int skipped, EnergyMeter& energy) {
  Watch watch{.skipped = skipped};
  MOED_ASSIGN_OR_RETURN(watch.before, client.GetStats(kStatsWindowSeconds));
  const auto start = SteadyClock::now();
  absl::Status counted;
  MOED_RETURN_IF_ERROR(client.GenerateStream(request, [&](const moe::v1::GenerateResponse& part) {
    if (part.has_finish()) watch.request = part.finish().stats();
    if (part.token_ids_size() == 0) return true;
    const double now = SecondsSince(start);
    if (watch.tokens == 0) watch.first_token_seconds = now;
    watch.tokens += part.token_ids_size();
    watch.counted_to = now;
    if (watch.counting() || watch.tokens <= skipped) return true;
    auto stats = client.GetStats(kStatsWindowSeconds);
    counted.Update(stats.status());
    if (!stats.ok()) return false;
    watch.at_count = *std::move(stats);
    watch.counted_first = watch.tokens;
    watch.counted_from = now;
    energy.TakeJoules();
    return true;
  }));
  MOED_RETURN_IF_ERROR(counted);
  watch.joules = energy.TakeJoules();
  MOED_ASSIGN_OR_RETURN(watch.after, client.GetStats(kStatsWindowSeconds));
  return watch;
}

Figures FiguresOf(const Sums& sums) {
  Figures figures;
  const auto ratio = [&figures](const char* name, double part, double whole) {
    if (whole > 0) figures[name] = part / whole;
  };
  ratio("prefill_tokens_per_second", sums.prompt_tokens, sums.prefill_seconds);
  ratio("prefill_hit_ratio", sums.prefill_hits, sums.prefill_lookups);
  ratio("lowered_per_token", sums.lowered, sums.tokens);
  ratio("skipped_per_token", sums.skipped, sums.tokens);
  ratio("masked_per_token", sums.masked, sums.tokens);
  ratio("gate_mass_lost", sums.mass_lost, sums.tokens);
  figures["decode_tokens"] = sums.decode_tokens;
  ratio("decode_tokens_per_second", sums.decode_tokens, sums.decode_seconds);
  ratio("bytes_per_token", sums.bytes, sums.decode_tokens);
  ratio("stall_share", sums.stall_seconds, sums.decode_seconds);
  ratio("disk_busy_share", sums.busy_seconds, sums.decode_seconds);
  ratio("read_bytes_per_second", sums.bytes, sums.busy_seconds);
  ratio("decode_hit_ratio", sums.decode_hits, sums.decode_lookups);
  if (sums.joules > 0) ratio("joules_per_token", sums.joules, sums.decode_tokens);
  return figures;
}

}  // namespace

// One request after the other, those of the protocol within its seconds, then further ones, each with twice the time, until
// enough tokens were counted.
absl::StatusOr<Sums> MeasureRequests(const SystemsBench& bench, const Contender& contender, const Protocol& protocol, int turn,
                                     Client& client) {
  EnergyMeter energy;
  Sums sums;
  const auto start = SteadyClock::now();
  const int warm_up = protocol.warm_up_tokens > 0 ? 1 : 0;
  const int requests = warm_up + protocol.requests;
  const double deadline = protocol.seconds + kMoreSeconds;
  double limit = 0;  // of a request
  for (int i = 0; i < requests || sums.decode_tokens < kLeastCountedTokens; ++i) {
    const double passed = SecondsSince(start);
    if (passed > deadline) {
      return FailedPrecondition("only ", sums.decode_tokens, " of at least ", kLeastCountedTokens, " tokens were counted within ",
                                deadline, " s");
    }
    const double left = protocol.seconds - passed;
    const bool enough = sums.decode_tokens >= kLeastCountedTokens;
    if (enough && left <= 0.1) break;
    limit = i < requests && left > 0.1 ? left / (requests - i) : std::min(2 * limit, deadline - passed);
    const bool counts = i >= warm_up;
    const int index = turn * requests + i;
    const PromptKind& kind = bench.prompts[static_cast<size_t>(index) % bench.prompts.size()];
    const std::vector<int> prompt = PromptOf(kind, protocol.prompt_tokens, index);
    const int tokens = counts ? protocol.skipped_tokens + 1 + protocol.counted_tokens : protocol.warm_up_tokens;
    const auto request = MakeRequest(contender, prompt, tokens, index + 1, limit);
    MOED_ASSIGN_OR_RETURN(const Watch watch, Ask(client, request, protocol.skipped_tokens, energy));
    if (counts) Add(watch, static_cast<int>(prompt.size()), sums);
    if (watch.tokens > 0) {
      const bool counted = counts && watch.counting();
      sums.played.push_back({prompt.front(), prompt.size() + static_cast<size_t>(watch.tokens) - 1,
                             static_cast<size_t>(counted ? watch.tokens - watch.counted_first : 0)});
    }
  }
  return sums;
}

absl::StatusOr<Figures> MeasureTurn(const SystemsBench& bench, const Contender& contender, const Cell& cell, int turn) {
  double disk = 0;
  if (bench.recorded != nullptr) {
    MOED_ASSIGN_OR_RETURN(disk, DiskBytesPerSecond(bench));
  }
  MOED_ASSIGN_OR_RETURN(const auto daemon, bench.StartDaemon(contender, cell));
  Client& client = daemon->client();
  MOED_ASSIGN_OR_RETURN(const moe::v1::ServerInfo info, client.GetServerInfo());
  MOED_ASSIGN_OR_RETURN(const Sums sums, MeasureRequests(bench, contender, cell.protocol, turn, client));
  Figures figures = FiguresOf(sums);
  MOED_ASSIGN_OR_RETURN(const moe::v1::Stats stats, client.GetStats(kStatsWindowSeconds));
  figures["cache_share"] =
      static_cast<double>(stats.cache_capacity_bytes()) / static_cast<double>(bench.reference_expert_bytes());
  figures["peak_resident_bytes"] = static_cast<double>(daemon->peak_resident_bytes());
  const bool asks_exact = contender.fidelity && contender.fidelity->kind() == moe::v1::Fidelity::EXACT;
  figures["exact"] = asks_exact || (!contender.fidelity && info.fidelity() == "exact") ? 1 : 0;
  if (bench.recorded != nullptr) {
    figures.erase("prefill_tokens_per_second");
    figures.erase("prefill_hit_ratio");
    figures["disk_bytes_per_second"] = disk;
    MOED_RETURN_IF_ERROR(AddBounds(bench, sums.played, stats.cache_capacity_bytes(), figures));
  }
  return figures;
}

absl::StatusOr<Figures> Learn(const SystemsBench& bench, const Contender& contender, const Cell& cell, double seconds) {
  constexpr int kPromptTokens = 64, kNewTokens = 64;
  const std::string learned = bench.LearnedPath(contender, cell.share), part = learned + ".part";
  std::error_code error;
  std::filesystem::create_directories(bench.learned_folder, error);
  std::filesystem::remove(part, error);
  Contender fresh = contender;
  fresh.learned = false;
  Cell native = cell;
  native.read_rate = 0;
  const auto start = SteadyClock::now();
  MOED_ASSIGN_OR_RETURN(auto daemon, bench.StartDaemon(fresh, native, {"--learned-state", part}));
  if (bench.recorded != nullptr) {
    MOED_ASSIGN_OR_RETURN(const moe::v1::Stats stats, daemon->client().GetStats(kStatsWindowSeconds));
    daemon.reset();
    MOED_ASSIGN_OR_RETURN(const double replayed,
                          LearnFromRecord(bench, fresh, bench.budgets.at(cell.share), stats.cache_capacity_bytes(),
                                          static_cast<size_t>(seconds * kReplayedTokensPerSecond), learned));
    return Figures{{"learned_tokens", replayed}, {"learned_seconds", SecondsSince(start)}};
  }
  double tokens = 0;
  for (int i = 0; SecondsSince(start) < seconds; ++i) {
    const PromptKind& kind = bench.learning[static_cast<size_t>(i) % bench.learning.size()];
    const auto request =
        MakeRequest(fresh, PromptOf(kind, kPromptTokens, i), kNewTokens, i + 1, std::max(seconds - SecondsSince(start), 0.1));
    MOED_RETURN_IF_ERROR(daemon->client().GenerateStream(request, [&tokens](const moe::v1::GenerateResponse& answer) {
      tokens += answer.token_ids_size();
      return true;
    }));
  }
  const double took = SecondsSince(start);
  daemon.reset();  // writes the file
  std::filesystem::rename(part, learned, error);
  if (error) return FailedPrecondition("the daemon left nothing that it learned in ", part, ": ", error.message());
  return Figures{{"learned_tokens", tokens}, {"learned_seconds", took}};
}

}  // namespace moed
