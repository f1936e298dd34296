// The cache with a tier in a device's own memory, on a stand-in for the device that runs copies as late as it may: whatever lies
// where, kernels find each expert's own bytes.
#include <optional>
#include <random>
#include <set>

#include "core/kernels/cuda/emulation/runtime.h"
#include "core/kernels/cuda_memory.h"
#include "tests/expert/provider_rig.h"

namespace moed {
namespace device_tier_test {

using emulation::NumberedCall;
using emulation::OrderCall;

// What the model and its backend do with a device, as far as experts see it.
class Device {
 public:
  explicit Device(uint64_t seed, std::optional<NumberedCall> without = std::nullopt)
      : runtime_(emulation::MakeEmulatedRuntime({.seed = seed, .watch = false, .without = without})),
        compute_(runtime_->MakeStream().value()),
        memory_(*runtime_, *compute_),
        copier_(memory_.MakeCopier().value()) {}

  emulation::EmulatedRuntime& runtime() { return *runtime_; }
  DeviceSlots Slots(int records) { return {&memory_.working(), copier_.get(), records * ExpertStore::Get().record_bytes()}; }
  Allocator& host() { return memory_.shared(); }

  // Enqueues that the parts are read, as a kernel would.
  void Use(ReadyExpert ready, LayerId layer) {
    const ReadyEvent* awaited = nullptr;  // one for all parts
    for (int p = 0; p < kExpertParts; ++p) {
      const auto part = static_cast<ExpertPart>(p);
      const PartBytes bytes = ready.handle.Part(part).value();
      if (bytes.ready != nullptr && bytes.ready != awaited) compute_->Await(*bytes.ready);
      awaited = bytes.ready != nullptr ? bytes.ready : awaited;
      Read& read = reads_.emplace_back();
      read.expected = SegmentContents(ExpertStore::Get().description(), {layer, ready.expert, ready.precision}, part);
      read.found = host().Allocate(bytes.bytes.size()).value();
      compute_->Copy(read.found.data(), bytes.bytes.data(), bytes.bytes.size());
    }
    in_flight_.push_back(std::move(ready));
  }
  // Returns whether all had the right bytes.
  bool Fence() {
    bool right = compute_->Synchronize().ok();
    for (const Read& read : reads_) {
      right &= std::ranges::equal(read.found.span().first(read.expected.size()), Bytes(read.expected));
    }
    reads_.clear();
    in_flight_.clear();
    return right;
  }

 private:
  struct Read {
    std::string expected;
    Buffer found;
  };
  const std::unique_ptr<emulation::EmulatedRuntime> runtime_;
  const std::unique_ptr<DeviceStream> compute_;
  CudaMemory memory_;
  const std::unique_ptr<Copier> copier_;
  std::vector<Read> reads_;
  std::vector<ReadyExpert> in_flight_;
};

struct Tiers {
  int host = 0;  // records
  int device = 0;
};

std::unique_ptr<CachingProvider> MakeTiered(ReadBackend& reads, Device& device, const Tiers& tiers, RigParts parts = {}) {
  parts.allocator = &device.host();
  parts.device = device.Slots(tiers.device);
  return MakeProvider(reads, Records(tiers.host), std::move(parts));
}

// As the model does: what is ready is used; where nothing is, what is in flight is given back before it waits.
bool RunLayerOn(Device& device, CachingProvider& provider, Routing& routing, std::set<int32_t>* delivered = nullptr) {
  const LayerRouting layer = routing.Get();
  provider.Begin(layer);
  bool right = device.Fence();
  for (;;) {
    std::optional<ReadyExpert> ready = provider.NextReady();
    if (!ready) {
      right &= device.Fence();
      ready = provider.Next();
    }
    if (!ready) return right;
    EXPECT_EQ(ready->status, absl::OkStatus());
    if (delivered != nullptr) delivered->insert(ready->expert);
    device.Use(*std::move(ready), layer.layer);
  }
}

bool RunLayerOn(Device& device, CachingProvider& provider, LayerId layer, std::vector<int32_t> experts) {
  Routing routing(layer, std::move(experts));
  return RunLayerOn(device, provider, routing);
}

// Half of a layer's uses are of its first three experts.
std::vector<int32_t> SkewedTopK(std::mt19937_64& random) {
  std::set<int32_t> chosen;
  while (chosen.size() < kTopK) chosen.insert(static_cast<int32_t>(random() % (random() % 2 == 0 ? 3 : kExperts)));
  return {chosen.begin(), chosen.end()};
}

// Whether every expert had its own bytes.
bool RunRandomSteps(Device& device, CachingProvider& provider, const Tiers& tiers, int steps, uint64_t seed) {
  std::mt19937_64 random(seed);
  const uint64_t record = ExpertStore::Get().record_bytes();
  for (int step = 0; step < steps; ++step) {
    EXPECT_EQ(provider.Lend(0).value().size(), 0u);
    for (const LayerId layer : kLayers) {
      const std::vector<int32_t> chosen = SkewedTopK(random);
      Routing routing(layer, chosen, step % 3 == 0 ? Phase::kPrefill : Phase::kDecode);
      std::set<int32_t> delivered;
      if (!RunLayerOn(device, provider, routing, &delivered)) return false;
      EXPECT_EQ(delivered, std::set<int32_t>(chosen.begin(), chosen.end()));
      const ExpertStats stats = provider.Stats();
      EXPECT_LE(stats.cache_bytes, tiers.host * record);
      EXPECT_LE(stats.device.bytes, tiers.device * record);
      if (testing::Test::HasFailure()) return false;
    }
  }
  return device.Fence();
}

void ServeEveryPolicyAndCapacity() {
  PartContext context{.model = StoreContext(), .hidden = 1};
  uint64_t seed = 0;
  for (const PolicyRow& policy : Policies()) {
    if (!policy.mask.empty()) continue;  // only with its mask
    for (const int host : {1, 2, kTopK, 12}) {
      for (const int slots : {2, 3, 9, 30}) {
        SCOPED_TRACE(StrCat(policy.name, ", ", host, " records in the host's memory, ", slots, " on the device"));
        Device device(seed++ % 3);
        auto reads = MakeThreadedReadBackend("memory", StoreFile(), 2);
        RigParts parts;
        parts.policy = MakePolicy(policy.name, context).value();
        if (seed % 2 == 0) {
          for (int32_t expert = 0; expert < kExperts; ++expert) parts.fill.push_back({kSecond, expert, kReferencePrecision});
        }
        const auto provider = MakeTiered(*reads, device, {host, slots}, std::move(parts));
        EXPECT_TRUE(RunRandomSteps(device, *provider, {host, slots}, 8, seed));
        EXPECT_GT(provider->Stats().device.risen_bytes, 0u);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(DeviceTier, EveryPolicyServesTheRightBytes) { ServeEveryPolicyAndCapacity(); }
TEST(DeviceTier, EveryPolicyServesTheRightBytesOfMixedFormats) {
  const ExpertStore::Mixed mixed;
  ServeEveryPolicyAndCapacity();
}

TEST(DeviceTier, WhatBothHoldTogetherIsReadOnce) {
  Device device(0);
  auto reads = MakeThreadedReadBackend("memory", StoreFile(), 1);
  const auto provider = MakeTiered(*reads, device, {18, 12});  // 24 experts, and what is on its way
  for (int round = 0; round < 4; ++round) {
    for (const LayerId layer : kLayers) EXPECT_TRUE(RunLayerOn(device, *provider, layer, {0, 1, 2, 3, 4, 5, 6, 7}));
  }
  EXPECT_THAT(Lookups(*provider), testing::ElementsAre(3 * 24, 24, 0));
  EXPECT_GE(provider->Stats().device.bytes, 8 * ExpertStore::Get().record_bytes());
}

RigParts FilledWithAll() {
  RigParts parts;
  for (const LayerId layer : kLayers) {
    for (int32_t expert = 0; expert < kExperts; ++expert) parts.fill.push_back({layer, expert, kReferencePrecision});
  }
  return parts;
}

// Filled while nothing computes: what is read first rises at once, what comes then stays.
TEST(DeviceTier, IsFilledBesideTheHostsMemory) {
  Device device(0);
  ManualReadBackend reads(1, StoreFile());
  const auto provider = MakeTiered(reads, device, {12, 20}, FilledWithAll());
  reads.CompleteAll();
  for (const LayerStats& layer : provider->Stats().layers) EXPECT_EQ(layer.resident[kReferencePrecision], kExperts);
  EXPECT_GT(provider->Stats().device.bytes, 10 * ExpertStore::Get().record_bytes());
  for (const LayerId layer : kLayers) EXPECT_TRUE(RunLayerOn(device, *provider, layer, {0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(Lookups(*provider)[0], 24u);
}

TEST(DeviceTier, WhatIsUsedMostLiesOnTheDevice) {
  Device device(0);
  auto reads = MakeThreadedReadBackend("memory", StoreFile(), 1);
  RigParts parts;
  parts.policy = MakePolicy("lfu", {.model = StoreContext(), .hidden = 1}).value();
  const auto provider = MakeTiered(*reads, device, {6, 5}, std::move(parts));
  for (int round = 0; round < 40; ++round) {
    for (const LayerId layer : kLayers) EXPECT_TRUE(RunLayerOn(device, *provider, layer, {0, 1 + round % 7}));
    device.runtime().Synchronize().IgnoreError();  // what sinks is gone
  }
  const DeviceTierStats before = provider->Stats().device;
  for (const LayerId layer : kLayers) EXPECT_TRUE(RunLayerOn(device, *provider, layer, {0}));
  EXPECT_EQ(provider->Stats().device.UsesOf(TierUse::kOnDevice) - before.UsesOf(TierUse::kOnDevice), std::size(kLayers));
  EXPECT_EQ(provider->Stats().device.risen_bytes, before.risen_bytes) << "where it lies already";
  uint64_t told = 0;
  for (const LayerCells& layer : provider->ChangedExperts(0).layers) {
    EXPECT_EQ(layer.experts[0].on_device, 1u);
    for (const ExpertCell& cell : layer.experts) {
      EXPECT_EQ(cell.on_device & ~cell.resident, 0u);
      told += cell.on_device * ExpertStore::Get().record_bytes();
    }
  }
  EXPECT_EQ(told, provider->Stats().device.bytes);
}

// Of every expert, its parts in order.
std::vector<const std::byte*> PartsOf(CachingProvider& provider) {
  std::vector<const std::byte*> parts(std::size(kLayers) * kExpertParts * kExperts);
  for (size_t layer = 0; layer < std::size(kLayers); ++layer) {
    for (int32_t expert = 0; expert < kExperts; ++expert) {
      Routing routing(kLayers[layer], {expert});
      provider.Begin(routing.Get());
      const std::optional<ReadyExpert> ready = provider.Next();
      for (size_t part = 0; part < kExpertParts; ++part) {
        parts[(layer * kExpertParts + part) * kExperts + static_cast<size_t>(expert)] =
            ready->handle.Part(static_cast<ExpertPart>(part))->bytes.data();
      }
      EXPECT_FALSE(provider.Next());
    }
  }
  return parts;
}

// What the host is not asked for in the middle of a step: where all lie, once they do, and until somebody may move them.
TEST(DeviceTier, TellsWhereAllLieOnceTheyDo) {
  Device device(0);
  ManualReadBackend reads(1, StoreFile());
  const auto provider = MakeTiered(reads, device, {24, 32}, FilledWithAll());
  EXPECT_TRUE(provider->WhereAllLie().empty()) << "nothing is read";
  reads.CompleteAll();
  ExpertTable table;
  for (int step = 0; step < kExperts * 3 && table.empty(); ++step) {  // what did not rise when it was read
    device.runtime().Synchronize().IgnoreError();
    table = provider->WhereAllLie();
  }
  ASSERT_EQ(table.size(), std::size(kLayers) * kExpertParts * kExperts);
  const std::vector<const std::byte*> before(table.begin(), table.end());
  // Nothing is read, and so nothing leaves, before the step is told whole.
  EXPECT_EQ(provider->Prefetch(std::vector<CachedKey>{{kFirst, 0, 1}}), 1u);
  EXPECT_FALSE(reads.CompleteNext());
  for (const LayerId layer : kLayers) {
    Routing routing(layer, {0, 3});
    provider->OnComputed(routing.Get());
  }
  EXPECT_TRUE(reads.CompleteNext());
  EXPECT_EQ(PartsOf(*provider), before);
  const ExpertStats stats = provider->Stats();
  EXPECT_EQ(stats.device.UsesOf(TierUse::kOnDevice), 6u + 24u);
  EXPECT_THAT(Lookups(*provider), testing::ElementsAre(6 + 24, 0, 0));
}

TEST(DeviceTier, AStepThatFailedHoldsNothing) {
  Device device(0);
  ManualReadBackend reads(1, StoreFile());
  const auto provider = MakeTiered(reads, device, {24, 32}, FilledWithAll());
  reads.CompleteAll();
  bool all = false;
  for (int step = 0; step < kExperts * 3 && !all; ++step) {
    device.runtime().Synchronize().IgnoreError();
    all = !provider->WhereAllLie().empty();
  }
  ASSERT_TRUE(all);
  EXPECT_EQ(provider->Prefetch(std::vector<CachedKey>{{kFirst, 0, 1}}), 1u);
  EXPECT_FALSE(reads.CompleteNext());
  ASSERT_TRUE(provider->Lend(0).ok());  // between steps
  EXPECT_TRUE(reads.CompleteNext());
}

TEST(DeviceTier, DoesNotTellWhereWhatLiesInTheHostsMemoryIs) {
  Device device(0);
  ManualReadBackend reads(1, StoreFile());
  const auto provider = MakeTiered(reads, device, {24, 20}, FilledWithAll());
  reads.CompleteAll();
  for (int step = 0; step < 30; ++step) {
    device.runtime().Synchronize().IgnoreError();
    EXPECT_TRUE(provider->WhereAllLie().empty());
  }
}

// A read that is in two parts is used from the host's memory while its end is on the way.
TEST(DeviceTier, WhatIsStillReadStaysWhereItIs) {
  Device device(0);
  ManualReadBackend reads(2, StoreFile());
  RigParts parts;
  parts.allocator = &device.host();
  parts.device = device.Slots(8);
  ProviderOptions options = Records(8);
  options.split_read_bytes = 1;
  const auto provider = MakeProvider(reads, options, std::move(parts));
  Routing routing(kFirst, {0});
  provider->Begin(routing.Get());
  ASSERT_TRUE(reads.CompleteNext());
  std::optional<ReadyExpert> ready = provider->Next();
  const PartBytes gate = ready->handle.Part(ExpertPart::kGate).value();
  EXPECT_EQ(gate.memory, MemoryKind::kHost);
  reads.CompleteAll();
  EXPECT_EQ(ready->handle.Part(ExpertPart::kGate)->bytes.data(), gate.bytes.data());
  device.Use(*std::move(ready), kFirst);
  EXPECT_FALSE(provider->Next());
  EXPECT_TRUE(device.Fence());
  EXPECT_EQ(provider->Stats().device.UsesOf(TierUse::kOverTheBus), 1u);
  EXPECT_TRUE(RunLayerOn(device, *provider, kFirst, {0}));
  EXPECT_EQ(provider->Stats().device.UsesOf(TierUse::kOnDevice), 1u);
}

// The bus takes both directions at once: what was computed with is there, while what it changed places with is on its way.
TEST(DeviceTier, WhoAwaitsWhatRisesDoesNotAwaitWhatSinks) {
  Device device(0);
  auto reads = MakeThreadedReadBackend("memory", StoreFile(), 1);
  const auto provider = MakeTiered(*reads, device, {3, 2});
  for (const int32_t expert : {0, 1}) EXPECT_TRUE(RunLayerOn(device, *provider, kFirst, {expert}));
  EXPECT_GT(provider->Stats().device.sunk_bytes, 0u);
  Routing routing(kFirst, {0});
  provider->Begin(routing.Get());
  std::optional<ReadyExpert> sunk = provider->Next();
  const PartBytes gate = sunk->handle.Part(ExpertPart::kGate).value();
  ASSERT_NE(gate.ready, nullptr);
  EXPECT_FALSE(gate.ready->Ready());
  device.Use(*std::move(sunk), kFirst);
  EXPECT_FALSE(provider->Next());
  EXPECT_TRUE(device.Fence());
}

// Where a record that rises or one that sinks is not awaited, or nothing says when it may be, other bytes are found.
TEST(DeviceTier, EveryWaitIsNeeded) {
  const auto run = [](std::optional<NumberedCall> without, std::array<uint64_t, emulation::kOrderCalls>* calls) {
    Device device(0, without);
    ManualReadBackend reads(1, StoreFile());
    const auto provider = MakeTiered(reads, device, {3, 3});
    bool right = true;
    for (const int32_t expert : {0, 1, 2, 0, 3, 1, 2}) {  // one at a time: who asks about one move gets others on
      Routing routing(kFirst, {expert});
      provider->Begin(routing.Get());
      reads.CompleteAll();
      while (std::optional<ReadyExpert> ready = provider->Next()) device.Use(*std::move(ready), kFirst);
      right &= device.Fence();
    }
    device.runtime().Synchronize().IgnoreError();  // copies that nobody knows of any more, before their memory goes
    if (calls != nullptr) {
      for (int call = 0; call < emulation::kOrderCalls; ++call) {
        (*calls)[call] = device.runtime().calls(static_cast<OrderCall>(call));
      }
    }
    return right;
  };
  std::array<uint64_t, emulation::kOrderCalls> calls;
  ASSERT_TRUE(run(std::nullopt, &calls));
  for (const OrderCall call : {OrderCall::kRecord, OrderCall::kAwait}) {
    ASSERT_GT(calls[static_cast<int>(call)], 0u);
    for (uint64_t number = 0; number < calls[static_cast<int>(call)]; ++number) {
      EXPECT_FALSE(run(NumberedCall{call, number}, nullptr))
          << "without call " << number << " of kind " << static_cast<int>(call);
    }
  }
}

TEST(DeviceTier, TooLittleMemoryIsRefused) {
  Device device(0);
  ManualReadBackend reads(1, StoreFile());
  const auto try_make = [&](int records) {
    RigParts parts;
    parts.allocator = &device.host();
    parts.device = device.Slots(records);
    return TryMakeProvider(reads, Records(2), std::move(parts)).status();
  };
  EXPECT_EQ(try_make(2), absl::OkStatus());
  const absl::Status small = try_make(1);
  EXPECT_EQ(small.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageText(small), testing::HasSubstr("two experts of"));
  device.runtime().RefuseMemory(true);
  EXPECT_EQ(try_make(2).code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace device_tier_test
}  // namespace moed
