// decode_bandwidth: decode with every expert resident, or as many as shares say, as a share of the memory's read bandwidth. Both
// are measured in turns in one run (A B A B), since machines are noisy; medians and the spread between the turns are printed.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <vector>

#include "CLI/CLI.hpp"
#include "core/base/buffer.h"
#include "core/base/clock.h"
#include "core/base/executor.h"
#include "core/base/status.h"
#include "core/expert/builder/build_provider.h"
#include "core/expert/presets/preset.h"
#include "core/io/read_backend.h"
#include "core/kernels/backend.h"
#include "core/machine/memory_read.h"
#include "core/model/model.h"
#include "core/model/processor_experts.h"

namespace moed {
namespace {

constexpr size_t kReadBytes = 1024 * kReadPieceBytes;  // beyond every cache

struct Options {
  std::string store;
  std::string backend = "auto";
  int threads = 2;
  int tokens = 64;
  int warm_tokens = 64;  // before it is measured
  int turns = 7;
  double cache_share = 1;   // of all experts, in the host's memory
  double device_share = 0;  // likewise, in a device's own memory
  bool processor = false;   // it computes beside the device
};

// Weights that one decoded token touches: the whole trunk but an untied embedding (one row of it), and top-k experts a layer.
double BytesPerToken(const StoreReader& store, const ModelSpec& spec) {
  double bytes = 0;
  for (const TensorInfo& tensor : store.description().trunk) {
    if (tensor.name != "embed" || spec.tied_embeddings) bytes += static_cast<double>(tensor.bytes);
  }
  for (const ExpertLayout& layer : store.description().precisions[kReferencePrecision].layers) {
    for (const ExpertSegment& segment : layer.segments) bytes += static_cast<double>(segment.bytes) * spec.top_k;
  }
  return bytes;
}

// One greedy sequence; starts over when the context is full.
class Decoding {
 public:
  Decoding(Model& model, KvPool& kv, ExpertProvider& provider, int context)
      : model_(model), kv_(kv), provider_(provider), context_(context) {
    provider_.OnSequenceStart(session_);
  }
  ~Decoding() { provider_.OnSequenceEnd(session_); }

  absl::Status Run(int tokens) {
    for (int i = 0; i < tokens; ++i) {
      if (sequence_.length + 1 > context_) kv_.Release(sequence_);
      if (!kv_.Reserve(sequence_, sequence_.length + 1)) return ResourceExhausted("no page left");
      SequenceChunk chunk{session_, Phase::kDecode, {&token_, 1}, &sequence_};
      model_.Forward({&chunk, 1}, provider_, [this](int, int, std::span<float> logits) {
        token_ = TokenId(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      });
      MOED_RETURN_IF_ERROR(chunk.status);
      // A greedy walk of a random model may run in circles; the walk over the vocabulary keeps the routing moving.
      token_ = TokenId((token_.value() + 7919 * i) % model_.spec().vocabulary);
    }
    return absl::OkStatus();
  }

 private:
  Model& model_;
  KvPool& kv_;
  ExpertProvider& provider_;
  const int context_;
  const SequenceId session_{1};
  KvSequence sequence_;
  TokenId token_{1};
};

// Bytes of so much of all experts, one at least.
uint64_t Share(const StoreReader& store, double share) {
  return std::max(static_cast<uint64_t>(static_cast<double>(store.all_expert_bytes()) * share),
                  store.largest_expert_bytes(kReferencePrecision));
}

struct Spread {
  double median, low, high;
};
Spread SpreadOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front(), values.back()};
}

// The host's cache, and what of a device holds experts.
struct Places {
  std::unique_ptr<Copier> copier;
  std::unique_ptr<ComputeBackend> processor;
  DeviceSlots device;
};
absl::Status PlaceExperts(const Options& options, const StoreReader& store, ComputeBackend& backend, Executor& executor,
                          Places& places) {
  if (options.device_share == 0) {
    return options.processor ? InvalidArgument("--processor is for experts beside a device: with --device-share")
                             : absl::OkStatus();
  }
  MOED_ASSIGN_OR_RETURN(places.copier, backend.memory().MakeCopier());
  places.device = {&backend.memory().working(), places.copier.get(), Share(store, options.device_share)};
  if (!options.processor) return absl::OkStatus();
  MOED_ASSIGN_OR_RETURN(places.processor, MakeComputeBackend("auto", executor));
  MOED_ASSIGN_OR_RETURN(places.device.bring_seconds_per_byte, MeasureBringing(backend));
  return absl::OkStatus();
}

absl::Status Run(const Options& options) {
  MOED_ASSIGN_OR_RETURN(auto store, StoreReader::Open(options.store));
  MOED_ASSIGN_OR_RETURN(const ModelSpec spec, SpecFromJson(store->description().model_spec));
  auto executor = MakeThreadPool(options.threads);
  MOED_ASSIGN_OR_RETURN(auto backend, MakeComputeBackend(options.backend, *executor));
  MOED_ASSIGN_OR_RETURN(auto reads, OpenReadBackend("auto", options.store, {}));
  const int context = std::min(256, spec.max_positions);
  MOED_ASSIGN_OR_RETURN(auto kv, KvPool::Create(spec, {.pages = KvPool::PagesFor(context)}, backend->memory()));
  Places places;
  MOED_RETURN_IF_ERROR(PlaceExperts(options, *store, *backend, *executor, places));
  MOED_ASSIGN_OR_RETURN(
      auto model,
      Model::Load({.store = *store, .spec = spec, .backend = *backend, .kv = *kv, .processor = places.processor.get()},
                  {1, context, 1}));

  ProviderInputs inputs;
  inputs.store = store.get();
  inputs.reads = reads.get();
  inputs.allocator = &backend->memory().shared();
  inputs.router = {spec.top_k, spec.hidden};
  inputs.device = places.device;
  inputs.options.capacity_bytes = Share(*store, options.cache_share);
  const bool all = options.cache_share >= 1;
  MOED_ASSIGN_OR_RETURN(const PresetSetup setup, ChoosePreset({.preset = all ? "io-free" : "auto"}, *store));
  MOED_ASSIGN_OR_RETURN(auto provider, BuildProvider(setup, inputs));

  MOED_ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate(kReadBytes));
  std::memset(memory.data(), 1, memory.size());
  const MemoryRead& best_read = BestRead(*executor, memory.span());
  const double token_bytes = BytesPerToken(*store, spec);
  Decoding decoding(*model, *kv, *provider, context);
  MOED_RETURN_IF_ERROR(decoding.Run(options.warm_tokens));
  const DeviceTierStats warm = provider->Stats().device;
  std::vector<double> read, decode, share;
  for (int turn = 0; turn < options.turns; ++turn) {
    read.push_back(ReadRate(best_read, *executor, memory.span()));
    const int64_t start = Clock::Real().NowNanos();
    MOED_RETURN_IF_ERROR(decoding.Run(options.tokens));
    decode.push_back(token_bytes * options.tokens / SecondsBetween(start, Clock::Real().NowNanos()) * 1e-9);
    share.push_back(decode.back() / read.back());
  }
  std::printf("%s, %d threads, %.1f MB of weights a token\n", std::string(backend->name()).c_str(), options.threads,
              token_bytes * 1e-6);
  const auto print = [](const char* what, const Spread& s) {
    std::printf("%-22s %7.2f  (%.2f to %.2f)\n", what, s.median, s.low, s.high);
  };
  print("memory read, GB/s", SpreadOf(read));
  print("decode, GB/s", SpreadOf(decode));
  print("share", SpreadOf(share));
  const DeviceTierStats device = provider->Stats().device;
  if (device.capacity_bytes > 0) {
    const auto a_token = [&](uint64_t now, uint64_t then) {
      return static_cast<double>(now - then) * 1e-6 / (options.turns * options.tokens);
    };
    std::printf("%-22s %.1f MB a token to the device, %.1f MB to the host\n", "experts moved",
                a_token(device.risen_bytes, warm.risen_bytes), a_token(device.sunk_bytes, warm.sunk_bytes));
    std::printf("%-22s %llu on the device, %llu over the bus, %llu by the processor\n", "experts used",
                static_cast<unsigned long long>(device.uses[0]), static_cast<unsigned long long>(device.uses[1]),
                static_cast<unsigned long long>(device.uses[2]));
  }
  if (backend->gains_by_whole_steps()) {
    const uint64_t whole = device.StepsOf(StepWay::kWhole);
    std::printf("%-22s %llu whole, %llu layer by layer\n", "steps", static_cast<unsigned long long>(whole),
                static_cast<unsigned long long>(std::accumulate(device.steps.begin(), device.steps.end(), uint64_t{0}) - whole));
  }
  std::printf("%-22s %7.1f\n", "tokens/s", SpreadOf(decode).median * 1e9 / token_bytes);
  return absl::OkStatus();
}

}  // namespace
}  // namespace moed

int main(int argc, char** argv) {
  CLI::App app("Decode with all experts in memory, or some, as a share of the memory's read bandwidth.");
  moed::Options options;
  app.add_option("store", options.store, "store to decode with; larger than the processor's caches")->required();
  app.add_option("--backend", options.backend, "kernels")->capture_default_str();
  app.add_option("--threads", options.threads, "threads")->check(CLI::Range(1, 256))->capture_default_str();
  app.add_option("--tokens", options.tokens, "tokens a turn")->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("--warm-tokens", options.warm_tokens, "tokens before that")->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("--turns", options.turns, "turns")->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--cache-share", options.cache_share,
                 "experts in the host's memory, as a share of all; with 1 none is read again")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--device-share", options.device_share, "experts in a device's own memory, as a share of all")
      ->check(CLI::Range(0.0, 1.25))
      ->capture_default_str();
  app.add_flag("--processor", options.processor, "the processor computes experts in the host's memory where that is sooner done");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = moed::Run(options);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
