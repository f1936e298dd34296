#include "client/load_generator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>
#include <thread>

#include "core/base/status.h"

namespace moed {
namespace {

using SteadyClock = std::chrono::steady_clock;

double SecondsSince(SteadyClock::time_point from) { return std::chrono::duration<double>(SteadyClock::now() - from).count(); }

// Seconds from the start at which each request arrives; all zero in a closed loop.
std::vector<double> Arrivals(const LoadOptions& options) {
  std::vector<double> arrivals(static_cast<size_t>(options.requests), 0.0);
  if (options.arrivals_per_second <= 0) return arrivals;
  std::mt19937_64 random(options.seed);
  std::exponential_distribution<double> gap(options.arrivals_per_second);
  double at = 0;
  for (double& arrival : arrivals) arrival = at += gap(random);
  return arrivals;
}

// `start`: when the client wanted to begin.
LoadSample RunOne(Client& client, const moe::v1::GenerateRequest& request, SteadyClock::time_point start,
                  Cancellation& cancellation) {
  LoadSample sample;
  double last = 0;
  sample.status = client.GenerateStream(
      request,
      [&](const moe::v1::GenerateResponse& part) {
        if (part.token_ids_size() == 0) return true;
        last = SecondsSince(start);
        if (sample.tokens == 0) sample.ttft_seconds = last;
        sample.tokens += part.token_ids_size();
        return true;
      },
      &cancellation);
  sample.latency_seconds = SecondsSince(start);
  if (sample.tokens > 1) sample.tpot_seconds = (last - sample.ttft_seconds) / (sample.tokens - 1);
  return sample;
}

// False when cancelled while waiting.
bool WaitUntil(SteadyClock::time_point when, const Cancellation& cancellation) {
  while (SteadyClock::now() < when) {
    if (cancellation.cancelled()) return false;
    std::this_thread::sleep_for(std::min<SteadyClock::duration>(when - SteadyClock::now(), std::chrono::milliseconds(20)));
  }
  return true;
}

}  // namespace

Percentiles PercentilesOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto rank = [&](double share) {
    const auto index = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::min(values.size(), std::max<size_t>(index, 1)) - 1];
  };
  return {rank(0.5), rank(0.9), rank(0.99),
          std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size())};
}

LoadReport Summarise(const std::vector<LoadSample>& samples, double wall_seconds) {
  LoadReport report;
  report.wall_seconds = wall_seconds;
  std::vector<double> ttft, tpot, latency;
  for (const LoadSample& sample : samples) {
    report.late += sample.late;
    report.tokens += sample.tokens;
    if (!sample.status.ok()) {
      ++report.errors[absl::StatusCodeToString(sample.status.code())];
      continue;
    }
    ++report.ok;
    latency.push_back(sample.latency_seconds);
    if (sample.tokens > 0) ttft.push_back(sample.ttft_seconds);
    if (sample.tokens > 1) tpot.push_back(sample.tpot_seconds);
  }
  report.ttft = PercentilesOf(std::move(ttft));
  report.tpot = PercentilesOf(std::move(tpot));
  report.latency = PercentilesOf(std::move(latency));
  return report;
}

std::vector<LoadSample> GenerateLoad(Client& client, const std::vector<std::string>& prompts,
                                     const moe::v1::GenerateRequest& form, const LoadOptions& options, Cancellation& cancellation,
                                     double* wall_seconds) {
  const std::vector<double> arrivals = Arrivals(options);
  std::vector<LoadSample> samples(arrivals.size());
  std::vector<char> done(arrivals.size(), 0);
  std::atomic<size_t> next{0};
  const auto start = SteadyClock::now();
  const auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < samples.size();) {
      const auto arrival = start + std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(arrivals[i]));
      const bool late = arrivals[i] > 0 && SteadyClock::now() > arrival + std::chrono::milliseconds(1);
      if (!WaitUntil(arrival, cancellation) || cancellation.cancelled()) return;
      moe::v1::GenerateRequest request = form;
      request.set_text(prompts[i % prompts.size()]);
      samples[i] = RunOne(client, request, arrivals[i] > 0 ? arrival : SteadyClock::now(), cancellation);
      samples[i].late = late;
      done[i] = 1;
    }
  };
  std::vector<std::thread> workers;
  for (int i = 0; i < std::min(options.concurrency, options.requests); ++i) workers.emplace_back(work);
  for (std::thread& worker : workers) worker.join();
  *wall_seconds = SecondsSince(start);
  std::vector<LoadSample> finished;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (done[i] != 0) finished.push_back(std::move(samples[i]));
  }
  return finished;
}

}  // namespace moed
