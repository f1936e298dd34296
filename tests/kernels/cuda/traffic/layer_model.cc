#include "tests/kernels/cuda/traffic/layer_model.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "core/kernels/cuda_backend.h"
#include "core/model/model.h"
#include "core/store/writer.h"
#include "tests/kernels/fixtures.h"
#include "tests/model/plain_provider.h"
#include "tests/store/made_up_store.h"
#include "tests/store/small_store.h"
#include "tools/pack/plan.h"

namespace moed {

constexpr RealModel kRealModels[2] = {
    {.name = "Qwen3-30B-A3B",
     .config = R"("model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
       "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
       "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [], "attention_bias": false, "hidden_act": "silu",
       "max_position_embeddings": 40960, "rope_theta": 1000000.0, "rms_norm_eps": 1e-06, "tie_word_embeddings": false,
       "eos_token_id": 1)",
     .kinds = {{"", 48}},
     .vocabulary = 151936,
     .experts = FormatId::kQ4},
    {.name = "gpt-oss-20b",
     .config = R"("model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_attention_heads": 64,
       "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128,
       "attention_bias": true, "hidden_act": "silu", "max_position_embeddings": 131072, "rope_theta": 150000.0,
       "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
       "original_max_position_embeddings": 4096, "truncate": false}, "rms_norm_eps": 1e-05, "tie_word_embeddings": false,
       "swiglu_limit": 7.0, "eos_token_id": 1)",
     .kinds = {{"sliding_attention", 12}, {"full_attention", 12}},
     .vocabulary = 201088,
     .experts = FormatId::kMxfp4}};

namespace {

constexpr int kMostPositions = 1024;
constexpr int kMostTokens = 64;
constexpr int kLayers = 2;

template <class T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  MOED_CHECK(value.ok());
  return *std::move(value);
}

StoreDescription Describe(const ModelSpec& spec, FormatId experts) {
  StoreDescription description = Must(DescribeMadeUpStore(spec, experts));
  description.tokenizer = "none";
  return description;
}

std::vector<std::byte> Contents(const TensorInfo& tensor, const ModelSpec& spec) {
  if (!tensor.vector) return RandomMatrix(tensor.format, tensor.rows, tensor.cols, 1).bytes;
  const std::vector<float> values =
      tensor.name == kInverseFrequencies ? InverseFrequencies(spec) : std::vector(static_cast<size_t>(tensor.cols), 1.0f);
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// Its experts are zeros: nobody reads them.
void Write(const std::string& path, const StoreDescription& description, const ModelSpec& spec) {
  const auto writer = Must(StoreWriter::Open(path, description, {.sync_bytes = UINT64_MAX, .sync_seconds = 1e9}));
  for (size_t i = 0; i < description.trunk.size(); ++i) {
    MOED_CHECK(writer->AppendTensor(i, Contents(description.trunk[i], spec)).ok());
  }
  for (int i = 0; i < kLayers * spec.experts; ++i) {
    for (const ExpertSegment& segment : description.precisions[0].layers[0].segments) {
      const CachedKey key{LayerId(i / spec.experts), i % spec.experts};
      MOED_CHECK(writer->AppendExpert(key, segment.part, std::vector<std::byte>(segment.bytes)).ok());
    }
  }
  MOED_CHECK(writer->Finish().ok());
}

constexpr DeviceAttributes kOrin = {
    .unified_memory = true, .memory_bytes = uint64_t{1} << 40, .shared_bytes = 48 << 10, .multiprocessors = 16};

// Of a machine with more threads than the one that this takes, so that there is scratch for as many.
class ManyThreads final : public Executor {
 public:
  int threads() const override { return 12; }
  void ParallelFor(int count, int grain, absl::FunctionRef<void(int, int)> body) override {
    own_.ParallelFor(count, grain, body);
  }

 private:
  InlineExecutor own_;
};

// All experts have the same weights.
class SameExperts final : public PlainProvider, internal::PinnedExpert {
 public:
  SameExperts(const ExpertLayout& layout, int experts) {
    for (const ExpertSegment& segment : layout.segments) {
      const std::vector<std::byte> bytes = RandomMatrix(segment.format, segment.rows, segment.cols, 2).bytes;
      Part& part = parts_[segment.part];
      part = {Buffer::Allocate(bytes.size()).value(), bytes.size()};
      std::ranges::copy(bytes, part.memory.data());
    }
    for (int i = 0; i < kLayers * kExpertParts * experts; ++i) {
      table_.push_back(parts_.at(static_cast<ExpertPart>(i / experts % kExpertParts)).memory.data());
    }
  }
  ExpertTable WhereAllLie() override { return whole_steps ? ExpertTable(table_) : ExpertTable(); }
  bool whole_steps = false;
  void Begin(const LayerRouting& routing) override {
    for (const TokenRouting& token : routing.tokens) {
      for (const ExpertChoice& choice : token.choices) wanted_.insert(choice.expert);
    }
  }
  std::optional<ReadyExpert> Next() override {
    if (wanted_.empty()) return std::nullopt;
    ReadyExpert ready;
    ready.expert = wanted_.extract(wanted_.begin()).value();
    ready.handle = ExpertHandle(this);
    return ready;
  }

 private:
  absl::StatusOr<PartBytes> WaitPart(ExpertPart part) override { return PartBytes{.bytes = parts_.at(part).span()}; }
  bool HasPart(ExpertPart) const override { return true; }
  void Unpin() override {}

  // Aligned as parts in a cache's slots are, on which it depends how many sectors they touch.
  struct Part {
    Buffer memory;
    size_t bytes = 0;
    std::span<const std::byte> span() const { return memory.span().first(bytes); }
  };
  std::map<ExpertPart, Part> parts_;
  std::vector<const std::byte*> table_;
  std::set<int32_t> wanted_;
};

emulation::GlobalTraffic Minus(emulation::GlobalTraffic all, const emulation::GlobalTraffic& before) {
  all.requests -= before.requests;
  all.sectors_moved -= before.sectors_moved;
  all.sectors_needed -= before.sectors_needed;
  for (const auto& [width, bytes] : before.bytes_by_width) all.bytes_by_width[width] -= bytes;
  return all;
}

StepTraffic Minus(StepTraffic all, const StepTraffic& before) {
  for (const auto& [name, earlier] : before.kernels) {
    emulation::KernelTraffic& kernel = all.kernels[name];
    kernel.launches -= earlier.launches;
    kernel.loads = Minus(kernel.loads, earlier.loads);
    kernel.loads_once = Minus(kernel.loads_once, earlier.loads_once);
    kernel.stores = Minus(kernel.stores, earlier.stores);
    kernel.shared.requests -= earlier.shared.requests;
    kernel.shared.passes -= earlier.shared.passes;
    kernel.shared.passes_needed -= earlier.shared.passes_needed;
    if (kernel.launches == 0) all.kernels.erase(name);
  }
  all.waits -= before.waits;
  return all;
}

std::string Config(const RealModel& model, const LayerKind& kind) {
  const std::string type = StrCat("\"", std::string(kind.layer_type), "\"");
  return StrCat("{", std::string(model.config), ", \"num_hidden_layers\": ", kLayers, ", \"vocab_size\": ", kLogitsRows,
                kind.layer_type.empty() ? "" : StrCat(", \"layer_types\": [", type, ", ", type, "]"), "}");
}

}  // namespace

struct LayerModel::Parts final : StepWatcher {
  Parts(const RealModel& model, const LayerKind& kind, bool logs) {
    const std::string config = Config(model, kind);
    spec = Must(Must(FamilyOf(config))->read_spec(config, ""));
    const StoreDescription description = Describe(spec, model.experts);
    const std::string path = folder / "layer";
    Write(path, description, spec);
    store = Must(StoreReader::Open(path));
    auto emulated = emulation::MakeEmulatedRuntime({.watch = false, .log = logs, .attributes = kOrin});
    runtime = emulated.get();
    backend = Must(MakeCudaBackend("cuda-emulated", cuda::kEmulatedKernels, std::move(emulated), executor));
    kv = Must(KvPool::Create(spec, {.pages = KvPool::PagesFor(kMostPositions), .format = KvFormat::kF16}, backend->memory()));
    this->model = Must(Model::Load({*store, spec, *backend, *kv}, {kMostTokens, kMostPositions, 1}));
    provider = std::make_unique<SameExperts>(description.precisions[0].layers[0], spec.experts);
  }

  StepTraffic SoFar() {
    StepTraffic traffic;
    traffic.waits = runtime->calls(emulation::OrderCall::kWait);
    MOED_CHECK(backend->Fence().ok());
    traffic.kernels = runtime->traffic();
    return traffic;
  }
  void OnLayerDone(std::span<SequenceChunk>) override {
    after_layer = SoFar();
    ++after_layer.waits;  // that of SoFar itself
  }

  void Forward(int position, int tokens, StepWatcher* watcher) {
    KvSequence sequence;
    MOED_CHECK(kv->Reserve(sequence, position + tokens));
    sequence.length = position;  // what the pages hold does not matter
    std::vector<TokenId> some;
    for (int i = 0; i < tokens; ++i) some.emplace_back(1 + 61 * i % (kLogitsRows - 1));
    SequenceChunk chunk = {.phase = tokens == 1 ? Phase::kDecode : Phase::kPrefill, .tokens = some, .kv = &sequence};
    chunk.first_logits = tokens - 1;
    model->Forward(
        std::span(&chunk, 1), *provider, [](int, int, std::span<float>) {}, watcher);
    MOED_CHECK(chunk.status.ok());
    kv->Release(sequence);
  }

  MemoryFolder folder;
  ManyThreads executor;
  ModelSpec spec;
  std::unique_ptr<StoreReader> store;
  emulation::EmulatedRuntime* runtime = nullptr;
  std::unique_ptr<ComputeBackend> backend;
  std::unique_ptr<KvPool> kv;
  std::unique_ptr<Model> model;
  std::unique_ptr<SameExperts> provider;
  StepTraffic after_layer;  // the first: behind the last nobody is told
};

LayerModel::LayerModel(const RealModel& model, const LayerKind& kind, bool logs)
    : parts_(std::make_unique<Parts>(model, kind, logs)) {}
LayerModel::~LayerModel() = default;

StepLaunches LayerModel::RepeatedStep(int position, bool whole) {
  constexpr int kTimes = 3;
  parts_->provider->whole_steps = whole;
  StepLaunches launches;
  for (int time = 0; time < kTimes; ++time) {
    const auto before = parts_->runtime->launches();
    const uint64_t waits = parts_->runtime->calls(emulation::OrderCall::kWait);
    parts_->Forward(position, 1, nullptr);
    const auto after = parts_->runtime->launches();
    launches = {after.single - before.single, after.graphs - before.graphs,
                parts_->runtime->calls(emulation::OrderCall::kWait) - waits};
  }
  return launches;
}

LayerTraffic LayerModel::Step(int position, int tokens) {
  StepTraffic before = parts_->SoFar();
  ++before.waits;  // that of SoFar itself
  parts_->Forward(position, tokens, parts_.get());
  const StepTraffic all = parts_->SoFar();
  StepTraffic first = Minus(parts_->after_layer, before);
  --first.waits;  // that of OnLayerDone
  const auto embedding = std::find_if(first.kernels.begin(), first.kernels.end(),
                                      [](const auto& kernel) { return kernel.first.starts_with("Embed"); });
  const auto embed = first.kernels.extract(embedding);
  LayerTraffic traffic = {.layer = first, .rest = Minus(Minus(all, parts_->after_layer), first)};
  traffic.rest.kernels.emplace(embed.key(), embed.mapped());
  return traffic;
}

}  // namespace moed
