#include "bench/replay/workload.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "bench/replay/empty_store.h"
#include "core/base/status.h"
#include "core/store/layout.h"

namespace moed {
namespace {

constexpr double kReadLayersOnNvme = 0.7;  // an expert's read, in the time that a layer computes

absl::StatusOr<std::optional<RoutingShape>> GivenShape(const WorkloadOptions& options) {
  const int given = (options.layers > 0) + (options.top_k > 0) + (options.experts > 0);
  if (given == 0) return std::optional<RoutingShape>();
  if (given < 3) return InvalidArgument("--layers, --top-k and --experts: all three or none");
  if (options.layers > kMaxLayers) return InvalidArgument("--layers ", options.layers, ": allowed are 1 to ", kMaxLayers);
  RoutingShape shape{.top_k = options.top_k, .experts = options.experts};
  for (int layer = 0; layer < options.layers; ++layer) shape.layers.push_back(LayerId(layer));
  return std::optional<RoutingShape>(std::move(shape));
}

void Limit(RoutingTrace& trace, size_t tokens) {
  for (TraceSequence& sequence : trace.sequences) {
    sequence.tokens = std::min(sequence.tokens, tokens);
    tokens -= sequence.tokens;
  }
  std::erase_if(trace.sequences, [](const TraceSequence& sequence) { return sequence.tokens == 0; });
}

}  // namespace

void AddWorkloadOptions(CLI::App& app, WorkloadOptions& options) {
  app.add_option("--trace-dir", options.trace_dir, "recorded routing to measure on (docs/routing-traces.md)")->required();
  app.add_option("--train-dir", options.train_dir, "recorded routing that is replayed first, to learn from");
  app.add_option("--layers", options.layers, "MoE layers of the traces")->check(CLI::PositiveNumber);
  app.add_option("--top-k", options.top_k, "experts that a token uses in a layer")->check(CLI::PositiveNumber);
  app.add_option("--experts", options.experts, "experts of a layer")->check(CLI::PositiveNumber);
  app.add_option("--expert-bytes", options.expert_bytes, "of one expert (default: the shape's)")->check(CLI::PositiveNumber);
  app.add_option("--link-bytes-per-second", options.link_bytes_per_second, "of the simulated disk")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--layer-seconds", options.layer_seconds,
                 "computing of one layer (default: an expert's read at 3.5 GB/s takes 0.7 of it)")
      ->check(CLI::PositiveNumber);
  app.add_option("--token-seconds", options.token_seconds, "from a token's last layer to the first one of the next token")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--limit-tokens", options.limit_tokens, "replay no more of each trace")->check(CLI::PositiveNumber);
}

std::vector<const RoutingTrace*> Workload::Traces() const {
  if (train) return {&*train, &trace};
  return {&trace};
}

absl::StatusOr<uint64_t> Workload::Slots(double budget) const {
  const auto slots = static_cast<uint64_t>(std::llround(budget * static_cast<double>(experts())));
  if (slots < 1) return InvalidArgument("--budget ", budget, ": holds no expert of ", experts());
  return slots;
}

absl::StatusOr<Workload> PrepareWorkload(const WorkloadOptions& options) {
  Workload work;
  MOED_ASSIGN_OR_RETURN(const std::optional<RoutingShape> shape, GivenShape(options));
  TokenTexts texts;
  if (!options.train_dir.empty()) {
    MOED_ASSIGN_OR_RETURN(work.train, ReadRoutingTrace(options.train_dir, shape, texts));
  }
  MOED_ASSIGN_OR_RETURN(work.trace, ReadRoutingTrace(options.trace_dir, shape, texts));
  if (work.train && !work.train->shape.SameExperts(work.trace.shape)) {
    return InvalidArgument("--train-dir ", options.train_dir, ": its shape differs from that of --trace-dir ", options.trace_dir);
  }
  if (options.limit_tokens > 0) {
    Limit(work.trace, options.limit_tokens);
    if (work.train) Limit(*work.train, options.limit_tokens);
  }
  work.expert_bytes = options.expert_bytes > 0 ? options.expert_bytes : work.trace.shape.expert_bytes;
  if (work.expert_bytes == 0) return InvalidArgument("--expert-bytes: needed, since the trace's shape does not tell it");
  const auto bytes = static_cast<double>(work.expert_bytes);
  work.times.read_seconds = bytes / options.link_bytes_per_second;
  work.times.layer_seconds = options.layer_seconds > 0 ? options.layer_seconds : bytes / kNvmeBytesPerSecond / kReadLayersOnNvme;
  work.times.token_seconds = options.token_seconds;
  MOED_ASSIGN_OR_RETURN(work.store, MakeEmptyStore(work.trace.shape));
  return work;
}

}  // namespace moed
