// Load on a server: closed loop (so many requests at once) or open loop (arrivals at a rate), measured at the client.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/client.h"

namespace moed {

struct LoadOptions {
  int requests = 32;
  int concurrency = 1;             // requests at once; in an open loop the most that may be under way
  double arrivals_per_second = 0;  // > 0: open loop with exponential gaps
  uint64_t seed = 1;               // of the gaps
};

// One request as the client saw it. Times begin, in an open loop, when it arrived, were it that all workers were busy: a server
// that is slow for one must not make its successors look as if they had come later.
struct LoadSample {
  absl::Status status;
  double ttft_seconds = 0;  // to the first message with a token
  double tpot_seconds = 0;  // (last token - first token) / (tokens - 1); 0 below two tokens
  double latency_seconds = 0;
  int tokens = 0;
  bool late = false;  // open loop: sent later than its arrival
};

struct Percentiles {
  double p50 = 0, p90 = 0, p99 = 0, mean = 0;
};
// Nearest rank; zeros for an empty set.
Percentiles PercentilesOf(std::vector<double> values);

struct LoadReport {
  int ok = 0;
  std::map<std::string, int> errors;  // by status name
  int late = 0;
  int64_t tokens = 0;
  double wall_seconds = 0;
  Percentiles ttft, tpot, latency;
};
LoadReport Summarise(const std::vector<LoadSample>& samples, double wall_seconds);

// Request i takes prompts[i mod prompts.size()] with `form`'s sampling and stopping. Blocks until all ended or `cancellation`.
std::vector<LoadSample> GenerateLoad(Client& client, const std::vector<std::string>& prompts,
                                     const moe::v1::GenerateRequest& form, const LoadOptions& options, Cancellation& cancellation,
                                     double* wall_seconds);

}  // namespace moed
