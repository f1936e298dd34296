#include "bench/systems/recorded.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "bench/replay/belady.h"
#include "bench/replay/empty_store.h"
#include "bench/replay/replay.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/expert/learning/learned_state.h"
#include "core/expert/presets/preset.h"
#include "core/io/read_backend.h"
#include "core/machine/disk_read.h"
#include "core/serving/serving_plan.h"
#include "core/store/checksum.h"
#include "core/store/store.h"

namespace moed {
namespace {

constexpr int kReadsAtOnce = 4;
constexpr uint64_t kBlockUnit = 4096;
// Of the simulated disk and model that are learned on: they decide how far ahead is guessed meanwhile, not what is learned of
// routing.
constexpr double kDiskBytesPerSecond = 3e9, kLayerSeconds = 2.5e-3;

uint64_t ExpertBytes(const SystemsBench& bench) {
  const RoutingShape& shape = bench.recorded->shape;
  return bench.reference_expert_bytes() / (shape.layers.size() * static_cast<size_t>(shape.experts));
}

// `tokens` of a recorded sequence, from its `begin`-th on.
void Append(const RoutingTrace& from, const TraceSequence& sequence, size_t begin, size_t tokens, RoutingTrace& to) {
  if (tokens == 0) return;
  to.sequences.push_back({to.tokens(), tokens, sequence.category});
  const size_t choices = from.shape.layers.size() * static_cast<size_t>(from.shape.top_k);
  for (size_t i = begin; i < begin + tokens; ++i) {
    const size_t token = sequence.first + i % sequence.tokens;
    to.token_ids.push_back(from.token_ids[token]);
    const auto at = static_cast<std::ptrdiff_t>(from.At(token, 0)), end = at + static_cast<std::ptrdiff_t>(choices);
    to.experts.insert(to.experts.end(), from.experts.begin() + at, from.experts.begin() + end);
    to.probabilities.insert(to.probabilities.end(), from.probabilities.begin() + at, from.probabilities.begin() + end);
  }
}

absl::StatusOr<double> BeladyHitRatio(const RoutingTrace& recorded, const std::vector<Played>& played, uint64_t slots) {
  RoutingTrace before{.shape = recorded.shape}, counted{.shape = recorded.shape};
  bool counting = false;
  for (const Played& one : played) {
    const TraceSequence& sequence = recorded.sequences[static_cast<size_t>(one.sequence)];
    const size_t first = counting ? 0 : one.tokens - one.counted;
    Append(recorded, sequence, 0, first, before);
    Append(recorded, sequence, first, one.tokens - first, counted);
    counting = counting || one.counted > 0;
  }
  std::vector<const RoutingTrace*> traces;
  if (before.tokens() > 0) traces.push_back(&before);
  traces.push_back(&counted);
  MOED_ASSIGN_OR_RETURN(const auto store, MakeEmptyStore(recorded.shape));
  ReplaySetup setup{.store = store.get(), .traces = traces, .slots = slots, .policy = "lru", .predictor = "none"};
  setup.times = {.read_seconds = 1, .layer_seconds = 1};
  MOED_ASSIGN_OR_RETURN(const ReplayResult result, Replay(setup, MakeBeladyPolicy(traces)));
  return result.ready_ratio();
}

}  // namespace

absl::Status ReadRecorded(const std::string& directory, size_t least_tokens, SystemsBench& bench) {
  TokenTexts texts;
  MOED_ASSIGN_OR_RETURN(RoutingTrace trace, ReadRoutingTrace(directory, std::nullopt, texts));
  std::map<std::string, PromptKind> kinds;
  for (size_t i = 0; i < trace.sequences.size(); ++i) {
    const TraceSequence& sequence = trace.sequences[i];
    if (sequence.tokens < least_tokens) continue;
    PromptKind& kind = kinds[sequence.category];
    kind.name = sequence.category;
    kind.ids.push_back(static_cast<int>(i));
  }
  if (kinds.size() < 2) {
    return InvalidArgument("--recorded-routing ", directory, ": ", kinds.size(), " categories have a sequence of at least ",
                           least_tokens, " tokens; two are needed, one of them to learn from");
  }
  for (auto& [name, kind] : kinds) {
    (bench.prompts.size() <= bench.learning.size() ? bench.prompts : bench.learning).push_back(std::move(kind));
  }
  bench.recorded_directory = directory;
  bench.recorded = std::make_shared<const RoutingTrace>(std::move(trace));
  return absl::OkStatus();
}

std::string HashOfTrace(const RoutingTrace& trace) {
  ChecksumStream checksum;
  checksum.Update(std::as_bytes(std::span(trace.experts)));
  checksum.Update(std::as_bytes(std::span(trace.probabilities)));
  for (const TraceSequence& sequence : trace.sequences) {
    const uint64_t place[] = {sequence.first, sequence.tokens};
    checksum.Update(std::as_bytes(std::span(place)));
  }
  return StrCat(absl::Hex(checksum.Value(), absl::kZeroPad16));
}

absl::StatusOr<double> LearnFromRecord(const SystemsBench& bench, const Contender& contender, uint64_t budget,
                                       uint64_t capacity_bytes, size_t tokens, const std::string& path) {
  RoutingTrace trace{.shape = bench.recorded->shape};
  for (size_t round = 0, before = 1; trace.tokens() < tokens && trace.tokens() != before; ++round) {
    before = trace.tokens();
    for (const PromptKind& kind : bench.learning) {
      if (round >= kind.ids.size() || trace.tokens() >= tokens) continue;
      const TraceSequence& sequence = bench.recorded->sequences[static_cast<size_t>(kind.ids[round])];
      Append(*bench.recorded, sequence, 0, std::min(sequence.tokens, tokens - trace.tokens()), trace);
    }
  }
  MOED_ASSIGN_OR_RETURN(const auto real, StoreReader::Open(bench.store));
  MOED_ASSIGN_OR_RETURN(const PresetSetup preset, ChoosePreset(ChoiceOf(contender), *real));
  const LearnedFile learned{path, real->model_hash(), LearnersOf(preset)};
  MOED_ASSIGN_OR_RETURN(const auto store, MakeEmptyStore(trace.shape));
  const RoutingTrace* const traces[] = {&trace};
  ReplaySetup setup{.store = store.get(),
                    .traces = traces,
                    .slots = std::max<uint64_t>(capacity_bytes / ExpertBytes(bench), 1),
                    .policy = std::string(preset.policy->name),
                    .predictor = std::string(preset.predictor->name),
                    .table_bytes = TokenTableBytes(budget),
                    .learned = &learned};
  setup.times = {.read_seconds = static_cast<double>(ExpertBytes(bench)) / kDiskBytesPerSecond, .layer_seconds = kLayerSeconds};
  MOED_RETURN_IF_ERROR(Replay(setup).status());
  return static_cast<double>(trace.tokens());
}

absl::StatusOr<double> DiskBytesPerSecond(const SystemsBench& bench) {
  MOED_ASSIGN_OR_RETURN(const auto reads, OpenReadBackend("auto", bench.store, {.queue_depth = kReadsAtOnce}));
  FileBlocks blocks{.bytes = static_cast<size_t>(ExpertBytes(bench) / kBlockUnit * kBlockUnit)};
  blocks.bytes = std::max<size_t>(blocks.bytes, kBlockUnit);
  std::error_code error;
  const uint64_t store_bytes = std::filesystem::file_size(bench.store, error);
  if (error) return NotFound(bench.store, ": ", error.message());
  blocks.count = store_bytes / blocks.bytes;
  MOED_ASSIGN_OR_RETURN(const DiskRead read,
                        MeasureDiskRead(*reads, blocks, {.seconds = 1, .depth = kReadsAtOnce}, Clock::Real()));
  return read.BytesPerSecond();
}

absl::Status AddBounds(const SystemsBench& bench, const std::vector<Played>& played, uint64_t capacity_bytes, Figures& figures) {
  MOED_ASSIGN_OR_RETURN(figures["belady_hit_ratio"],
                        BeladyHitRatio(*bench.recorded, played, std::max<uint64_t>(capacity_bytes / ExpertBytes(bench), 1)));
  const auto figure = [&figures](const char* name) { return figures.contains(name) ? figures.at(name) : 0; };
  const double disk = std::max(figure("disk_bytes_per_second"), figure("read_bytes_per_second"));
  const double reading = disk > 0 ? figure("bytes_per_token") * figure("decode_tokens_per_second") / disk : 0;
  figures["bound_share"] = std::max(reading, 1 - figure("stall_share"));
  return absl::OkStatus();
}

}  // namespace moed
