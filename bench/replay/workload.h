// What subcommands on recorded routing have in common: traces, the shape of the model, the simulated disk.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "bench/replay/replay.h"
#include "bench/replay/routing_trace_reader.h"
#include "core/store/store.h"

namespace moed {

inline constexpr double kNvmeBytesPerSecond = 3.5e9;

struct WorkloadOptions {
  std::string trace_dir, train_dir;
  int layers = 0, top_k = 0, experts = 0;
  uint64_t expert_bytes = 0;
  double link_bytes_per_second = kNvmeBytesPerSecond;
  double layer_seconds = 0, token_seconds = 0;
  size_t limit_tokens = 0;
};
void AddWorkloadOptions(CLI::App& app, WorkloadOptions& options);

struct Workload {
  RoutingTrace trace;
  std::optional<RoutingTrace> train;  // replayed first
  uint64_t expert_bytes = 0;
  ReplayTimes times;
  std::unique_ptr<StoreReader> store;

  std::vector<const RoutingTrace*> Traces() const;
  size_t experts() const { return trace.shape.layers.size() * static_cast<size_t>(trace.shape.experts); }
  // Of a share of all experts. INVALID_ARGUMENT where that is none.
  absl::StatusOr<uint64_t> Slots(double budget) const;
};
absl::StatusOr<Workload> PrepareWorkload(const WorkloadOptions& options);

}  // namespace moed
