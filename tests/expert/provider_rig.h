// A provider over a small random store, with everything around it in the test's hands.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/buffer.h"
#include "core/base/clock.h"
#include "core/base/trace.h"
#include "core/expert/cache/caching_provider.h"
#include "core/expert/fidelity/table.h"
#include "core/expert/part_context.h"
#include "core/expert/policies/table.h"
#include "core/expert/predictors/table.h"
#include "core/io/file.h"
#include "core/io/read_backend.h"
#include "core/store/expert_norms.h"
#include "core/store/store.h"
#include "core/store/writer.h"
#include "tests/io/lying_file.h"
#include "tests/store/small_store.h"

namespace moed {

inline constexpr int kExperts = 8;
inline constexpr int kTopK = 4;
inline constexpr LayerId kFirst(0), kSecond(2), kThird(3);
inline const LayerId kLayers[] = {kFirst, kSecond, kThird};

// 1, 2, 3 ...; the norms are the last tensor.
inline void WriteNorms(StoreWriter& writer, const StoreDescription& description) {
  std::vector<float> norms(static_cast<size_t>(description.trunk.back().cols));
  std::iota(norms.begin(), norms.end(), 1.f);
  MOED_CHECK(writer.AppendTensor(description.trunk.size() - 1, std::as_bytes(std::span(norms))).ok());
}

// Three MoE layers of eight experts at two precisions whose records differ in size; written once.
class ExpertStore {
 public:
  // The one that is in use: of one format each, unless a Mixed says otherwise.
  static const ExpertStore& Get() { return mixed_ ? Of<true, false>() : coded_ ? Of<false, true>() : Of<false, false>(); }
  // While it lives, layers and parts differ in format, and layers in the size of their records.
  struct Mixed {
    Mixed() { mixed_ = true; }
    Mixed(const Mixed&) = delete;
    ~Mixed() { mixed_ = false; }
  };

  // While it lives, records are coded.
  struct Coded {
    Coded() { coded_ = true; }
    Coded(const Coded&) = delete;
    ~Coded() { coded_ = false; }
  };

  const StoreDescription& description() const { return description_; }
  const std::string& path() const { return path_; }
  const std::string& contents() const { return contents_; }
  const StoreReader& reader() const { return *reader_; }
  // The largest.
  uint64_t record_bytes(Precision precision = kReferencePrecision) const { return reader_->largest_expert_bytes(precision); }
  uint64_t OffsetOf(LayerId layer, int expert, Precision precision = kReferencePrecision) const {
    return reader_->RecordOffset({layer, expert, precision});
  }
  FileRange RangeOf(LayerId layer, int expert) const {
    return {OffsetOf(layer, expert), OffsetOf(layer, expert) + reader_->stored_bytes({layer, expert})};
  }
  std::span<const uint64_t> largest_records() const { return largest_records_; }
  uint64_t down_offset() const { return description_.precisions[0].layers[0].segments[2].offset; }

 private:
  template <bool mixed, bool coded>
  static const ExpertStore& Of() {
    static const ExpertStore store(mixed, coded);
    return store;
  }

  ExpertStore(bool mixed, bool coded) : description_(SmallDescription()), path_(folder_ / "experts.moed") {
    description_.moe_layers.assign(std::begin(kLayers), std::end(kLayers));
    description_.experts_per_layer = kExperts;
    description_.precisions.clear();
    const PartShapes shapes = {MatrixShape{64, 96}, MatrixShape{64, 96}, MatrixShape{96, 64}};
    constexpr FormatId f32 = FormatId::kF32, q8 = FormatId::kQ8, q4 = FormatId::kQ4, q2 = FormatId::kQ2;
    for (const FormatId format : {q8, q4}) description_.precisions.push_back(LayOutExperts(format, shapes, 3));
    if (mixed) {
      std::vector<ExpertLayout>& high = description_.precisions[0].layers;
      high[1] = LayOutExpert({q4, q4, q8}, shapes);
      high[2] = LayOutExpert({q4, q8, f32}, shapes);
      description_.precisions[1].layers[1] = LayOutExpert({q2, q8, q8}, shapes);
    }
    description_.trunk.push_back(ExpertNormsTensor(description_));
    LayOutTrunk(description_);
    if (coded) MarkCoded(description_);
    auto writer = StoreWriter::Open(path_, description_, {});
    MOED_CHECK(writer.ok());
    WriteNorms(**writer, description_);
    WritePieces(**writer, description_);
    MOED_CHECK((*writer)->Finish().ok());
    contents_ = FileContents(path_);
    reader_ = StoreReader::Open(path_).value();
    MOED_CHECK(record_bytes(0) != record_bytes(1));
    largest_records_ = {record_bytes(0), record_bytes(1)};
  }

  static inline bool mixed_ = false, coded_ = false;

  MemoryFolder folder_;
  StoreDescription description_;
  std::string path_;
  std::string contents_;
  std::unique_ptr<StoreReader> reader_;
  std::vector<uint64_t> largest_records_;  // by precision
};

// Where the reference record of an expert begins in that store.
inline uint64_t At(LayerId layer, int expert) { return ExpertStore::Get().OffsetOf(layer, expert); }

inline ExpertModelShape StoreContext() { return {kLayers, kExperts, kTopK, 2}; }
// With a cache for as many records of the reference precision.
inline ExpertModelShape StoreContext(int records) {
  const std::span<const uint64_t> record_bytes = ExpertStore::Get().largest_records();
  return {kLayers, kExperts, kTopK, 2, record_bytes, records * record_bytes[0]};
}

// For any row's part, with a gate that gives every expert something else.
inline PartContext StoreParts(int records = 24) {
  const auto gate = [](LayerId, std::span<const float>, std::span<float> out) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = 1.0f / static_cast<float>(i + 2);
  };
  return {.model = StoreContext(records), .hidden = 96, .gate = gate, .store = &ExpertStore::Get().reader()};
}

// Says what the test told it to say about the layers after `from`.
class ScriptedPredictor final : public ExpertPredictor {
 public:
  explicit ScriptedPredictor(std::map<LayerId, std::vector<Guess>> script) : script_(std::move(script)) {}
  void Predict(SequenceId, LayerId from, std::vector<Guess>& best_first) override {
    const auto found = script_.find(from);
    if (found != script_.end()) best_first.insert(best_first.end(), found->second.begin(), found->second.end());
  }

 private:
  const std::map<LayerId, std::vector<Guess>> script_;
};

inline const SequenceId kSession(1);

// Parts that a test does not set are the plain ones.
struct RigParts {
  std::unique_ptr<EvictionPolicy> policy = MakePolicy("lru", {StoreContext()}).value();
  std::unique_ptr<ExpertPredictor> predictor = MakePredictor("none", {}).value();
  std::unique_ptr<RouterMask> mask = MakeRouterMask("none", {StoreContext()}).value();
  std::unique_ptr<FidelityRule> fidelity = MakeFidelityRule("exact", {.model = StoreContext()}).value();
  const Clock* clock = &Clock::Real();
  Allocator* allocator = &Allocator::Host();
  DeviceSlots device;
  Trace* trace = nullptr;
  std::vector<CachedKey> fill;
  size_t known = 0;  // of fill
  int encoder_positions = 0;
};

inline ProviderOptions Records(int records) {
  return {.capacity_bytes = records * ExpertStore::Get().record_bytes(), .split_read_bytes = UINT64_MAX};
}

inline absl::StatusOr<std::unique_ptr<CachingProvider>> TryMakeProvider(ReadBackend& reads, const ProviderOptions& options,
                                                                        RigParts parts = {}) {
  ProviderParts all{.store = &ExpertStore::Get().reader(),
                    .reads = &reads,
                    .policy = std::move(parts.policy),
                    .predictor = std::move(parts.predictor),
                    .mask = std::move(parts.mask),
                    .fidelity = std::move(parts.fidelity),
                    .clock = parts.clock,
                    .allocator = parts.allocator,
                    .device = parts.device,
                    .trace = parts.trace,
                    .fill = std::move(parts.fill),
                    .known = parts.known,
                    .encoder_positions = parts.encoder_positions};
  return CachingProvider::Create(std::move(all), options);
}

// With one sequence, kSession, started.
inline std::unique_ptr<CachingProvider> MakeProvider(ReadBackend& reads, const ProviderOptions& options, RigParts parts = {}) {
  auto provider = TryMakeProvider(reads, options, std::move(parts));
  MOED_CHECK(provider.ok());
  (*provider)->OnSequenceStart(kSession);
  return *std::move(provider);
}

// Routing that owns its choices. Probabilities fall with the rank: 0.5, 0.25, ...
class Routing {
 public:
  explicit Routing(LayerId layer) : layer_(layer) {}
  Routing(LayerId layer, std::vector<int32_t> experts, Phase phase = Phase::kDecode, Fidelity fidelity = Fidelity::Exact())
      : layer_(layer) {
    Add(kSession, std::move(experts), phase, fidelity);
  }
  Routing& Add(SequenceId sequence, std::vector<int32_t> experts, Phase phase = Phase::kDecode,
               Fidelity fidelity = Fidelity::Exact()) {
    std::vector<ExpertChoice>& choices = choices_.emplace_back();
    float probability = 1;
    for (const int32_t expert : experts) choices.push_back({expert, probability /= 2});
    tokens_.push_back({.sequence = sequence, .phase = phase, .fidelity = fidelity});
    return *this;
  }
  LayerRouting Get() {
    for (size_t i = 0; i < choices_.size(); ++i) tokens_[i].choices = choices_[i];
    return {layer_, tokens_};
  }

 private:
  LayerId layer_;
  std::vector<std::vector<ExpertChoice>> choices_;
  std::vector<TokenRouting> tokens_;
};

// Every part has the bytes that were packed.
inline void ExpectRightBytes(const ReadyExpert& ready, LayerId layer) {
  const StoreDescription& description = ExpertStore::Get().description();
  for (int p = 0; p < kExpertParts; ++p) {
    const auto part = static_cast<ExpertPart>(p);
    const auto found = ready.handle.Part(part);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->memory, MemoryKind::kHost);
    EXPECT_EQ(found->ready, nullptr);
    const std::string expected = SegmentContents(description, {layer, ready.expert, ready.precision}, part);
    EXPECT_TRUE(std::ranges::equal(found->bytes, Bytes(expected)))
        << "layer " << layer.value() << " expert " << ready.expert << " part " << p;
  }
}

// What a layer handed out, in order.
struct Delivered {
  std::vector<int32_t> experts;
  std::map<int32_t, absl::Status> failures;
};
// Begins the layer and takes everything, one handle at a time. All reads are answered by someone else.
inline Delivered RunLayer(CachingProvider& provider, Routing& routing) {
  const LayerRouting layer = routing.Get();
  provider.Begin(layer);
  Delivered delivered;
  while (auto ready = provider.Next()) {
    delivered.experts.push_back(ready->expert);
    if (!ready->status.ok()) {
      delivered.failures[ready->expert] = ready->status;
      continue;
    }
    ExpectRightBytes(*ready, layer.layer);
  }
  return delivered;
}
inline Delivered RunLayer(CachingProvider& provider, LayerId layer, std::vector<int32_t> experts) {
  Routing routing(layer, std::move(experts));
  return RunLayer(provider, routing);
}

// Answers every read and takes everything, one handle at a time; of it, `failing` and nothing else has failed. Returns the order.
inline std::vector<int32_t> Drain(CachingProvider& provider, ManualReadBackend& reads, const std::vector<int32_t>& failing = {}) {
  std::vector<int32_t> order, failed;
  reads.CompleteAll();
  while (auto ready = provider.Next()) {
    order.push_back(ready->expert);
    if (!ready->status.ok()) failed.push_back(ready->expert);
    ready.reset();
    reads.CompleteAll();
  }
  EXPECT_THAT(failed, testing::ElementsAreArray(failing));
  return order;
}
// The same, of a layer that it begins.
inline std::vector<int32_t> RunLayer(CachingProvider& provider, ManualReadBackend& reads, LayerId layer,
                                     std::vector<int32_t> experts, const std::vector<int32_t>& failing = {}) {
  Routing routing(layer, std::move(experts));
  provider.Begin(routing.Get());
  return Drain(provider, reads, failing);
}

inline std::shared_ptr<LyingFile> StoreFile() {
  return std::make_shared<LyingFile>("experts.moed", ExpertStore::Get().contents());
}

// Reference-precision residents.
inline std::vector<ExpertKey> ResidentExperts(const CachingProvider& provider) {
  std::vector<ExpertKey> residents;
  for (const ExpertHeat& heat : provider.HottestExperts(INT32_MAX)) {
    if (heat.resident && heat.key.precision == kReferencePrecision) residents.push_back(heat.key.expert_key());
  }
  std::ranges::sort(residents);
  return residents;
}

inline std::array<uint64_t, kLookupResults> Lookups(const CachingProvider& provider) {
  std::array<uint64_t, kLookupResults> sum{};
  for (const LayerStats& layer : provider.Stats().layers) {
    for (const auto& phase : layer.lookups) {
      for (int result = 0; result < kLookupResults; ++result) sum[result] += phase[result];
    }
  }
  return sum;
}

inline uint64_t Outcomes(const CachingProvider& provider, PrefetchOutcome outcome) {
  return provider.Stats().prefetches[static_cast<size_t>(outcome)];
}

inline std::string MessageText(const absl::Status& status) { return {status.message().data(), status.message().size()}; }

}  // namespace moed
