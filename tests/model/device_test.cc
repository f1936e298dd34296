// The CUDA kernels in emulation, through whole models: every family's checkpoint has the logits of "scalar", and no kernel
// touches memory that the backend did not hand out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/expert/builder/build_provider.h"
#include "core/io/metered_backend.h"
#include "core/kernels/cuda_attention.h"
#include "core/model/scratch.h"
#include "tests/kernels/emulated_backend.h"
#include "tests/model/long_sequences.h"
#include "tests/model/packed_model.h"

namespace moed {
namespace {

class DeviceTest : public testing::TestWithParam<std::string> {
 protected:
  // A piece of a prompt, then the rest of it, then tokens one by one. `whole`: without a wait in a step, where the model allows
  // it.
  Logits Of(const StoreReader& store, ModelSetup setup, ComputeBackend* backend, bool whole = false) {
    setup.use_backend = backend;
    PackedModel model(store, setup);
    MemoryProvider provider(store, backend != nullptr ? backend->memory().shared() : Allocator::Host());
    if (whole) provider.LetStepsBeWhole();
    std::vector<std::vector<std::vector<int32_t>>> chosen;
    provider.RecordExperts(chosen);
    const std::vector<TokenId> tokens = RandomTokens(16, 1, model.spec().vocabulary);
    TestSequence sequence;
    Logits all;
    size_t first = 0;
    for (const size_t count : {9, 3, 1, 1, 1, 1}) {
      SequenceChunk chunk = {.tokens = std::span(tokens).subspan(first, count), .kv = &sequence.kv, .first_logits = 0};
      const std::vector<Logits> logits = model.Step(provider, std::span(&chunk, 1));
      all.insert(all.end(), logits[0].begin(), logits[0].end());
      EXPECT_EQ(chunk.status, absl::OkStatus());
      first += count;
    }
    EXPECT_EQ(all.size(), tokens.size());
    const bool can = whole && !model.spec().encoder && !model.spec().prefix;
    const int top_k = model.spec().top_k;
    const int few = 4 + (3 * top_k <= kGroupRows) + (9 * top_k <= kGroupRows);  // steps
    EXPECT_EQ(provider.steps[static_cast<size_t>(StepWay::kWhole)], can ? few : 0);
    if (chosen_.empty()) chosen_ = chosen;
    EXPECT_EQ(chosen, chosen_) << "what the provider is told";
    return all;
  }

  std::vector<std::vector<std::vector<int32_t>>> chosen_;  // by the first run

  EmulatedBackend unified_{{.watch = true, .attributes = emulation::kUnifiedDevice}};
  EmulatedBackend discrete_{{.watch = true, .attributes = emulation::kDiscreteDevice}};
};

TEST_P(DeviceTest, HasTheBitsOfScalar) {
  const StoreReader& store = PackedStore(GetParam(), FormatId::kQ4);
  for (const KvFormat kv_format : {KvFormat::kF32, KvFormat::kQ8}) {
    SCOPED_TRACE(StrCat("keys and values of ", kKvFormatNames[static_cast<int>(kv_format)]));
    // The first step is larger than what the model has memory of its own for, or is not.
    const int own = kv_format == KvFormat::kQ8 ? 8 : 0;
    const ModelSetup setup = {.page_tokens = 16, .own_step_tokens = own, .kv_format = kv_format};
    chosen_.clear();
    const Logits expected = Of(store, setup, nullptr);
    const bool whole = kv_format == KvFormat::kQ8;
    EXPECT_TRUE(SameBits(Of(store, setup, unified_.backend.get(), whole), expected));
    EXPECT_TRUE(SameBits(Of(store, setup, discrete_.backend.get(), !whole), expected)) << "in memory of its own";
  }
}

// Where experts are there, all that a decoded token launches is graphs, one between two waits. Where the provider says where all
// are, it is one graph and one wait, and one copy of what describes it to memory of the device's own. Capped logits are copied
// from there.
#if __has_builtin(__builtin_clear_padding)
TEST_P(DeviceTest, TokensAreLaunchedAsGraphs) {
  const StoreReader& store = PackedStore(GetParam(), FormatId::kQ4);
  for (EmulatedBackend* const emulated : {&unified_, &discrete_}) {
    emulation::EmulatedRuntime& device = *emulated->device;
    const bool unified = emulated == &unified_;
    SCOPED_TRACE(unified ? "unified memory" : "memory of its own");
    PackedModel model(store, {.page_tokens = 16, .use_backend = emulated->backend.get()});
    MemoryProvider provider(store, emulated->backend->memory().shared());
    uint64_t copies = 0;
    const auto launched = [&](std::span<const TokenId> tokens) {
      TestSequence sequence;
      model.Feed(provider, sequence, tokens.first(5), 1);
      const emulation::LaunchCounts before = device.launches();
      const uint64_t waits = device.calls(emulation::OrderCall::kWait), copied = device.calls(emulation::OrderCall::kCopy);
      model.Feed(provider, sequence, tokens.last(1), 1);
      EXPECT_EQ(device.launches().single, before.single);
      EXPECT_EQ(device.launches().graphs - before.graphs, device.calls(emulation::OrderCall::kWait) - waits);
      copies = device.calls(emulation::OrderCall::kCopy) - copied;
      return device.launches().graphs - before.graphs;
    };
    const std::vector<TokenId> tokens = RandomTokens(6, 1, model.spec().vocabulary);
    EXPECT_GT(launched(tokens), 1u);
    if (model.spec().encoder || model.spec().prefix) continue;
    provider.LetStepsBeWhole();
    EXPECT_EQ(launched(tokens), 1u);
    const uint64_t capped = model.spec().logits_cap != 0 ? 1 : 0;
    EXPECT_EQ(copies, unified ? 0u : 1u + capped);
  }
}
#endif

// A device with memory of its own reads nothing of the host's but experts that lie there.
TEST_P(DeviceTest, KernelsReadWhatLiesOnTheDevice) {
  const StoreReader& store = PackedStore(GetParam(), FormatId::kQ4);
  EmulatedBackend logged{{.watch = false, .log = true, .attributes = emulation::kDiscreteDevice}};
  PackedModel model(store, {.page_tokens = 16, .use_backend = logged.backend.get()});
  MemoryProvider provider(store, logged.backend->memory().shared());
  const std::vector<TokenId> tokens = RandomTokens(4, 1, model.spec().vocabulary);
  for (const bool whole : {false, true}) {
    if (whole) provider.LetStepsBeWhole();
    TestSequence sequence;
    model.Feed(provider, sequence, tokens, 3);
  }
  const auto traffic = logged.device->traffic();
  EXPECT_FALSE(traffic.empty());
  for (const auto& [kernel, counted] : traffic) EXPECT_EQ(counted.loads_of_host.requests, 0u) << kernel;
}

// Tokens where experts change places with others in each layer: one list of launches and one wait from router to router, no graph
// that is made anew, and of copies what describes a list, what is shown to the host, and one for each record that moves.
#if __has_builtin(__builtin_clear_padding)
TEST(DiscreteMemory, ExpertsThatMoveCostTheirCopiesAlone) {
  const StoreReader& store = PackedStore("qwen3_moe", FormatId::kQ4);
  EmulatedBackend discrete{{.watch = false, .attributes = emulation::kDiscreteDevice}};
  emulation::EmulatedRuntime& device = *discrete.device;
  const auto copier = discrete.backend->memory().MakeCopier().value();
  const auto reads = OpenReadBackend("auto", store.path(), {}).value();
  PackedModel model(store, {.page_tokens = 16, .use_backend = discrete.backend.get()});
  ProviderInputs inputs = {.store = &store, .reads = reads.get(), .router = {model.spec().top_k, model.spec().hidden}};
  inputs.allocator = &discrete.backend->memory().shared();
  inputs.device = {&discrete.backend->memory().working(), copier.get(), store.all_expert_bytes() / 2};
  inputs.options.capacity_bytes = store.all_expert_bytes();
  const auto provider = BuildProvider(ChoosePreset({.preset = "io-free"}, store).value(), inputs).value();

  const std::vector<TokenId> tokens = RandomTokens(48, 1, model.spec().vocabulary);
  TestSequence sequence;
  provider->OnSequenceStart(sequence.id);
  model.Feed(*provider, sequence, std::span(tokens).first(32), 1);
  const auto moved = [&] { return provider->Stats().device.risen_bytes + provider->Stats().device.sunk_bytes; };
  const auto calls = [&](emulation::OrderCall call) { return device.calls(call); };
  const emulation::LaunchCounts launched = device.launches();
  const uint64_t waits = calls(emulation::OrderCall::kWait), copies = calls(emulation::OrderCall::kCopy), bytes = moved();
  const uint64_t steps = 16, layers = model.spec().MoeLayers().size();
  model.Feed(*provider, sequence, std::span(tokens).last(steps), 1);
  EXPECT_EQ(device.launches().single, launched.single);
  EXPECT_EQ(device.launches().graphs_made, launched.graphs_made);
  EXPECT_EQ(device.launches().graphs - launched.graphs, steps * (layers + 1));
  EXPECT_EQ(calls(emulation::OrderCall::kWait) - waits, steps * (layers + 1));
  const uint64_t records = (moved() - bytes) / store.largest_expert_bytes(kReferencePrecision);
  EXPECT_GT(records, steps * layers);
  EXPECT_EQ(calls(emulation::OrderCall::kCopy) - copies, steps * (2 * layers + 1) + records);
  provider->OnSequenceEnd(sequence.id);
}
#endif

// What the host looks at or changes within a step, on a device whose memory it cannot read: inputs of gates, a mask, a gate that
// is asked for.
TEST(DiscreteMemory, TheHostReadsAndWritesWhatItMay) {
  const StoreReader& store = PackedStore("qwen2_moe", FormatId::kQ4);
  EmulatedBackend discrete{{.watch = true, .attributes = emulation::kDiscreteDevice}};
  const auto run = [&](ComputeBackend* backend, std::vector<float>& seen) {
    PackedModel model(store, {.use_backend = backend});
    MemoryProvider provider(store, backend != nullptr ? backend->memory().shared() : Allocator::Host());
    const LayerId last = model.spec().MoeLayers().back();
    provider.mask_router = [](LayerId, std::span<float> logits) { logits[1] = -INFINITY; };
    provider.on_gate_input = [&](SequenceId, LayerId, std::span<const float> hidden) {
      seen.insert(seen.end(), hidden.begin(), hidden.end());
      std::vector<float> probabilities(model.spec().experts);
      model.model().GateProbabilities(last, hidden, probabilities);
      seen.insert(seen.end(), probabilities.begin(), probabilities.end());
    };
    TestSequence sequence;
    return model.Feed(provider, sequence, RandomTokens(7, 1, model.spec().vocabulary), 5);
  };
  std::vector<float> expected_seen, seen;
  const Logits expected = run(nullptr, expected_seen);
  EXPECT_TRUE(SameBits(run(discrete.backend.get(), seen), expected));
  EXPECT_FALSE(seen.empty());
  EXPECT_TRUE(SameBits({seen}, {expected_seen}));
}

// What the memory plan counts is what the device gives.
TEST(UnifiedMemory, HoldsWhatWasPlannedAndNothingElse) {
  const StoreReader& store = PackedStore("qwen2_moe", FormatId::kQ4);
  EmulatedBackend unified{{.attributes = emulation::kUnifiedDevice}};
  const auto pinned = [&] { return unified.device->AllocatedBytes(MemoryKind::kPinned); };
  const uint64_t before = pinned();
  const ModelSpec spec = *SpecFromJson(store.description().model_spec);
  const auto kv = *KvPool::Create(spec, {.pages = 3}, unified.backend->memory());
  EXPECT_EQ(pinned() - before, RoundUp(3 * KvPool::PageBytes(spec), kPageBytes));
  const ModelOptions options = {.max_step_tokens = 8, .max_context = 64, .logits_rows = 1};
  const auto model = *Model::Load({store, spec, *unified.backend, *kv}, options);
  EXPECT_EQ(pinned() - before, RoundUp(3 * KvPool::PageBytes(spec), kPageBytes) + RoundUp(model->trunk_bytes(), kPageBytes) +
                                   Model::ScratchBytes(spec, options, unified.backend->threads()));
}

// However long the context, and however few the processor's threads.
TEST(DiscreteMemory, HoldsWhatSpreadsADecodedTokensAttention) {
  constexpr int kContext = 8192;
  EmulatedBackend discrete{{.attributes = emulation::kDiscreteDevice}};
  Descriptions descriptions(*discrete.device);
  const std::vector<std::byte*> pages(kContext / kKvPageTokens);
  const KvRun run = {.pages = pages, .position = kContext - 1, .tokens = 1};
  const auto pieces = [&](const std::string& family, auto operation_of) {
    ModelSpec spec = *SpecFromJson(PackedStore(family, FormatId::kQ4).description().model_spec);
    spec.heads = 32 * spec.kv_heads;
    const auto own = AllocateScratch(spec, {.max_step_tokens = 1, .max_context = kContext, .logits_rows = 1}, /*threads=*/1,
                                     discrete.backend->memory());
    const cuda::AttendedRuns attended = {{&run, 1}, own->scratch.scores, /*multiprocessors=*/132, descriptions};
    return cuda::AttentionOperation(operation_of(spec, attended)).pieces.count;
  };
  EXPECT_EQ(pieces("deepseek_v3",
                   [](const ModelSpec& spec, const cuda::AttendedRuns& attended) {
                     const LatentShape shape = {
                         .heads = spec.heads, .rank = spec.latent->kv_rank, .rotary_dims = spec.rotary_dims};
                     return cuda::AttentionOf(shape, nullptr, nullptr, 0, nullptr, attended);
                   }),
            kContext / cuda::kAttentionPiece);
  EXPECT_EQ(pieces("qwen3_moe",
                   [](const ModelSpec& spec, const cuda::AttendedRuns& attended) {
                     const AttentionShape shape = {.heads = spec.heads, .kv_heads = spec.kv_heads, .head_dim = spec.head_dim};
                     return cuda::AttentionOf(shape, nullptr, nullptr, attended);
                   }),
            kContext / cuda::kAttentionPiece);
}

// The device has what kernels alone touch, the host's memory the rest.
TEST(DiscreteMemory, HoldsWhatWasPlannedAndNothingElse) {
  const StoreReader& store = PackedStore("qwen2_moe", FormatId::kQ4);
  EmulatedBackend discrete{{.attributes = emulation::kDiscreteDevice}};
  const auto bytes = [&](MemoryKind kind) { return discrete.device->AllocatedBytes(kind); };
  const uint64_t pinned_before = bytes(MemoryKind::kPinned);
  EXPECT_EQ(bytes(MemoryKind::kDevice), 0u);
  const ModelSpec spec = *SpecFromJson(store.description().model_spec);
  const auto kv = *KvPool::Create(spec, {.pages = 3}, discrete.backend->memory());
  const ModelOptions options = {.max_step_tokens = 8, .max_context = 64, .logits_rows = 1};
  const auto reads = OpenReadBackend("auto", store.path(), {}).value();
  uint64_t read = 0;  // what the progress of a load is told by
  std::unique_ptr<Model> model;
  {
    const auto metered = MakeMeteredBackend(*reads, [&read](uint64_t bytes) {
      read += bytes;
      return absl::OkStatus();
    });
    model = Model::Load({.store = store, .spec = spec, .backend = *discrete.backend, .kv = *kv, .trunk = metered.get()}, options)
                .value();
  }
  EXPECT_EQ(read, store.description().trunk_bytes);
  const ScratchSizes scratch = SeparateScratchBytes(spec, options, discrete.backend->threads());
  EXPECT_EQ(bytes(MemoryKind::kDevice),
            RoundUp(3 * KvPool::PageBytes(spec), kPageBytes) + RoundUp(model->trunk_bytes(), kPageBytes) + scratch.working);
  EXPECT_EQ(bytes(MemoryKind::kPinned) - pinned_before, scratch.shared);
}

TEST(UnifiedMemory, KeysAndValuesOfOtherMemoryAreRefused) {
  const StoreReader& store = PackedStore("qwen2_moe", FormatId::kQ4);
  EmulatedBackend unified{{.attributes = emulation::kUnifiedDevice}};
  const ModelSpec spec = *SpecFromJson(store.description().model_spec);
  const auto kv = *KvPool::Create(spec, {.pages = 3});
  const absl::Status refused = Model::Load({store, spec, *unified.backend, *kv}, {8, 64, 1}).status();
  EXPECT_EQ(refused, InvalidArgument("the KV pool is not in the memory of the backend 'cuda-emulated'"));
}

// Experts that are not in the backend's memory end the step: no device would have read them.
TEST(UnifiedMemory, ExpertsOfOtherMemoryAreAFault) {
  const StoreReader& store = PackedStore("qwen2_moe", FormatId::kQ4);
  EmulatedBackend unified{{.attributes = emulation::kUnifiedDevice}};
  PackedModel model(store, {.use_backend = unified.backend.get()});
  MemoryProvider provider(store);
  const std::vector<TokenId> tokens = {TokenId(1)};
  TestSequence sequence;
  SequenceChunk chunk = {.tokens = tokens, .kv = &sequence.kv};
  model.Step(provider, std::span(&chunk, 1));
  EXPECT_EQ(chunk.status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(chunk.status.message()), testing::HasSubstr("which no allocation holds"));
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, DeviceTest, testing::ValuesIn(CheckpointNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace moed
