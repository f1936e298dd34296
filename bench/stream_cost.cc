// What streaming over gRPC costs a token: the same requests to a running daemon as streams and as one answer each at the end, in
// turns that begin with either of them alternately.
//
//   stream_cost --server 127.0.0.1:50051 --tokens 128 --turns 9 --sessions 1 --pid $(pidof moed)
//
// Both compute the same tokens (same seeds); only the stream hands each of them to gRPC and to the client on its way. Time per
// token is the daemon's own. Best on a daemon with all experts in memory: waits for the disk only add noise.
//
// With --pid, also the processor time of a token by thread of the daemon (/proc/PID/task/*/schedstat) and of this client, and how
// often each was put on a processor for it: what can be compared where other programs disturb the clock. With several sessions, a
// token is one of any session. Threads that used less than a tenth of a microsecond are left out.
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "client/client.h"
#include "client/load_generator.h"
#include "core/base/status.h"

namespace moed {
namespace {

struct Options {
  std::string server;
  std::string prompt = "Once upon a time there was a";
  int tokens = 128;
  int turns = 9;
  int sessions = 1;
  int pid = 0;
};

struct Usage {
  double microseconds = 0;
  double runs = 0;  // times put on a processor
};
using UsageByThread = std::map<std::string, Usage>;

Usage OwnUsage() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  const auto microseconds = [](const timeval& time) {
    return 1e6 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec);
  };
  return {microseconds(used.ru_utime) + microseconds(used.ru_stime), static_cast<double>(used.ru_nvcsw + used.ru_nivcsw)};
}

// Since each living thread of process `pid` began, and this process; empty for pid 0.
absl::StatusOr<UsageByThread> ReadUsage(int pid) {
  UsageByThread usage;
  if (pid == 0) return usage;
  std::error_code error;
  std::filesystem::directory_iterator task(StrCat("/proc/", pid, "/task"), error);
  for (; !error && task != std::filesystem::directory_iterator(); task.increment(error)) {
    std::string name;
    std::ifstream comm(task->path() / "comm"), schedstat(task->path() / "schedstat");
    double nanos = 0, waited = 0, runs = 0;
    if (std::getline(comm, name) && schedstat >> nanos >> waited >> runs) {
      usage[StrCat(name, " ", task->path().filename().string())] = {nanos / 1e3, runs};
    }
  }
  if (usage.empty()) return NotFound("--pid ", pid, ": no schedstat of its threads can be read");
  usage["client"] = OwnUsage();
  return usage;
}

struct Cost {
  double tpot_seconds = 0;  // mean of the sessions
  UsageByThread usage;      // of one token
};

moe::v1::GenerateRequest Request(const Options& options, int seed) {
  moe::v1::GenerateRequest request;
  request.set_text(options.prompt);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(static_cast<uint64_t>(seed));
  request.mutable_stopping()->set_max_new_tokens(options.tokens);
  request.mutable_stopping()->set_min_new_tokens(options.tokens);
  return request;
}

absl::StatusOr<double> Tpot(Client& client, const moe::v1::GenerateRequest& request, bool streamed) {
  if (!streamed) {
    MOED_ASSIGN_OR_RETURN(const moe::v1::GenerateResponse answer, client.Generate(request));
    return answer.finish().stats().tpot_seconds();
  }
  double tpot = 0;
  MOED_RETURN_IF_ERROR(client.GenerateStream(request, [&](const moe::v1::GenerateResponse& part) {
    if (part.has_finish()) tpot = part.finish().stats().tpot_seconds();
    return true;
  }));
  return tpot;
}

// One answer for each session, all at once.
absl::StatusOr<Cost> Answer(Client& client, const Options& options, int turn, bool streamed) {
  MOED_ASSIGN_OR_RETURN(const UsageByThread before, ReadUsage(options.pid));
  std::vector<absl::StatusOr<double>> tpots(options.sessions);
  std::vector<std::thread> sessions;
  for (int i = 0; i < options.sessions; ++i) {
    sessions.emplace_back([&, i] { tpots[i] = Tpot(client, Request(options, turn * options.sessions + i), streamed); });
  }
  for (std::thread& session : sessions) session.join();
  Cost cost;
  MOED_ASSIGN_OR_RETURN(cost.usage, ReadUsage(options.pid));
  for (auto& [thread, usage] : cost.usage) {
    const auto found = before.find(thread);
    const Usage start = found == before.end() ? Usage{} : found->second;
    const double tokens = static_cast<double>(options.sessions) * options.tokens;
    usage = {(usage.microseconds - start.microseconds) / tokens, (usage.runs - start.runs) / tokens};
  }
  for (const absl::StatusOr<double>& tpot : tpots) {
    MOED_RETURN_IF_ERROR(tpot.status());
    cost.tpot_seconds += *tpot / options.sessions;
  }
  return cost;
}

template <class Figure>
double Median(const std::vector<Cost>& costs, Figure figure) {
  std::vector<double> values;
  for (const Cost& cost : costs) values.push_back(figure(cost));
  return PercentilesOf(std::move(values)).p50;
}

void PrintUsage(const std::vector<Cost>& streamed, const std::vector<Cost>& whole) {
  if (streamed.front().usage.empty()) return;
  std::cout << "of a token, medians          streamed us   whole us   streamed runs   whole runs\n";
  const auto line = [&](const std::string& name, auto usage_of) {
    const auto microseconds = [&](const Cost& cost) { return usage_of(cost).microseconds; };
    const auto runs = [&](const Cost& cost) { return usage_of(cost).runs; };
    const double with = Median(streamed, microseconds), without = Median(whole, microseconds);
    if (std::max(with, without) < 0.1) return;
    std::cout << absl::StrFormat("%-27s %13.1f %10.1f %15.2f %12.2f\n", name, with, without, Median(streamed, runs),
                                 Median(whole, runs));
  };
  for (const auto& entry : streamed.back().usage) {
    line(entry.first, [&](const Cost& cost) {
      const auto found = cost.usage.find(entry.first);
      return found == cost.usage.end() ? Usage{} : found->second;
    });
  }
  line("all", [](const Cost& cost) {
    Usage sum;
    for (const auto& [thread, usage] : cost.usage) sum = {sum.microseconds + usage.microseconds, sum.runs + usage.runs};
    return sum;
  });
}

absl::Status Measure(const Options& options) {
  MOED_ASSIGN_OR_RETURN(const auto client, Client::Connect(options.server));
  MOED_RETURN_IF_ERROR(Answer(*client, options, 0, /*streamed=*/false).status());  // warms up
  std::vector<Cost> streamed, whole;
  std::vector<double> ratios;
  for (int turn = 1; turn <= options.turns; ++turn) {
    for (const bool streams : {turn % 2 == 1, turn % 2 == 0}) {
      MOED_ASSIGN_OR_RETURN(Cost cost, Answer(*client, options, turn, streams));
      (streams ? streamed : whole).push_back(std::move(cost));
    }
    const double with = streamed.back().tpot_seconds, without = whole.back().tpot_seconds;
    ratios.push_back(with / without);
    std::cout << absl::StrFormat("turn %d: streamed %.3f ms, whole %.3f ms a token, ratio %.4f\n", turn, with * 1e3,
                                 without * 1e3, ratios.back())
              << std::flush;
  }
  const auto tpot = [](const Cost& cost) { return cost.tpot_seconds; };
  const auto [lowest, highest] = std::ranges::minmax(ratios);
  std::cout << absl::StrFormat("median: streamed %.3f ms, whole %.3f ms a token, ratio %.4f (%.4f to %.4f)\n",
                               Median(streamed, tpot) * 1e3, Median(whole, tpot) * 1e3, PercentilesOf(ratios).p50, lowest,
                               highest);
  PrintUsage(streamed, whole);
  return absl::OkStatus();
}

}  // namespace
}  // namespace moed

int main(int argc, char** argv) {
  moed::Options options;
  CLI::App app("what streaming over gRPC costs a token");
  app.add_option("--server", options.server, "address of a running daemon")->required();
  app.add_option("--prompt", options.prompt, "text to continue");
  app.add_option("--tokens", options.tokens, "of each answer")->check(CLI::Range(2, 1 << 20));
  app.add_option("--turns", options.turns, "pairs of answers")->check(CLI::Range(1, 1000));
  app.add_option("--sessions", options.sessions, "answers at once")->check(CLI::Range(1, 256));
  app.add_option("--pid", options.pid, "the daemon's process on this machine: also processor time by thread")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = moed::Measure(options);
  if (!status.ok()) std::cerr << "stream_cost: " << status.ToString() << "\n";
  return status.ok() ? 0 : 1;
}
