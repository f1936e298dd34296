// Every policy x predictor x capacity serves the same bytes however they are read, each wanted expert once, inside the capacity.
#include <algorithm>
#include <deque>
#include <random>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "core/expert/cache/fill_order.h"
#include "core/expert/presets/table.h"
#include "tests/expert/provider_rig.h"

namespace moed {
namespace provider_matrix_test {

// Answers in random order, from one thread of its own.
class ShufflingBackend final : public ReadBackend {
 public:
  ShufflingBackend(std::shared_ptr<const RandomAccessFile> file, uint64_t seed) : file_(std::move(file)), random_(seed) {}
  ~ShufflingBackend() override {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    thread_.join();
  }
  std::string_view name() const override { return "shuffling"; }
  const std::string& description() const override { return description_; }
  int max_in_flight() const override { return 4; }
  void Submit(ReadOp op) override {
    absl::MutexLock lock(&mutex_);
    ops_.push_back(std::move(op));
  }

 private:
  void Work() {
    const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !ops_.empty(); };
    for (;;) {
      ReadOp op;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(&has_work));
        if (ops_.empty()) return;
        std::swap(ops_[random_() % ops_.size()], ops_.back());
        op = std::move(ops_.back());
        ops_.pop_back();
      }
      op.done(file_->ReadAt(op.offset, op.destination));
    }
  }

  const std::string description_ = "answers in random order";
  const std::shared_ptr<const RandomAccessFile> file_;
  absl::Mutex mutex_;
  std::mt19937_64 random_;
  std::vector<ReadOp> ops_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_{[this] { Work(); }};
};

struct Reading {
  std::string name;
  std::unique_ptr<ReadBackend> backend;
};

// One thread, four threads, shuffled, and what this file system allows of the real ones.
std::vector<Reading> Readings() {
  std::vector<Reading> readings;
  readings.push_back({"one thread", MakeThreadedReadBackend("one thread", StoreFile(), 1)});
  readings.push_back({"four threads", MakeThreadedReadBackend("four threads", StoreFile(), 4)});
  readings.push_back({"shuffled", std::make_unique<ShufflingBackend>(StoreFile(), 11)});
  for (const ReadBackendRow& row : ReadBackends()) {
    auto backend = OpenReadBackend(row.name, ExpertStore::Get().path(), {});
    if (backend.ok()) readings.push_back({std::string(row.name), *std::move(backend)});
  }
  return readings;
}

// A gate that is right about half of the time: it prefers experts by a hash of the layer and the hidden state's first number.
void NoisyGate(LayerId layer, std::span<const float> hidden, std::span<float> probabilities) {
  std::mt19937_64 random(static_cast<uint64_t>(hidden[0]) * 131 + layer.value());
  for (float& p : probabilities) p = static_cast<float>(random() % 1000) / 1000;
}

constexpr int kMostRecords = 24;
constexpr int kLeastRecords = 2;

// The top experts of that gate, one of them replaced now and then.
std::vector<int32_t> RandomTopK(std::mt19937_64& random, LayerId layer, float hidden) {
  std::array<float, kExperts> probabilities;
  NoisyGate(layer, {&hidden, 1}, probabilities);
  std::vector<int32_t> order(kExperts);
  for (int e = 0; e < kExperts; ++e) order[e] = e;
  std::ranges::stable_sort(order, [&](int a, int b) { return probabilities[a] > probabilities[b]; });
  if (random() % 2 == 0) std::swap(order[random() % kTopK], order[kTopK + random() % (kExperts - kTopK)]);
  order.resize(kTopK);
  return order;
}

// Now and then the cache gets another size, records are pinned or not any more, others are asked for. Whether it is refused is
// for other tests.
void OperateAtRandom(std::mt19937_64& random, CachingProvider& provider) {
  const auto some_keys = [&] {
    std::vector<CachedKey> keys(1 + random() % 3);
    for (CachedKey& key : keys) {
      key = {kLayers[random() % std::size(kLayers)], static_cast<int32_t>(random() % kExperts), kReferencePrecision};
    }
    return keys;
  };
  switch (random() % 6) {
    case 0:
      return provider.Resize((1 + random() % kMostRecords) * ExpertStore::Get().record_bytes()).IgnoreError();
    case 1:
      return provider.Pin(some_keys()).IgnoreError();
    case 2:
      return random() % 2 == 0 ? provider.UnpinAll() : provider.Unpin(some_keys());
    case 3:
      provider.Prefetch(some_keys());
  }
}

// What is pinned is there, on its way, or waits to be read.
void ExpectPinnedAreThere(const CachingProvider& provider) {
  const auto waiting = static_cast<std::ptrdiff_t>(provider.Stats().asked.waiting);  // first: reads that end meanwhile are there
  const std::vector<ExpertHeat> residents = provider.ResidentRecords();
  const std::vector<CachedKey> pinned = provider.Pinned();
  const auto missing = std::ranges::count_if(
      pinned, [&](const CachedKey& key) { return std::ranges::count(residents, key, &ExpertHeat::key) == 0; });
  EXPECT_LE(missing, waiting + 1);
}

// Before every other step as much as leaves one record, or less, is lent; beside pinned ones as much as was planned for.
uint64_t RandomLoan(std::mt19937_64& random, const CachingProvider& provider) {
  const uint64_t record = ExpertStore::Get().record_bytes();
  const uint64_t most =
      provider.Pinned().empty() ? provider.Stats().cache_capacity_bytes - record : kLeastRecords * record - record;
  const uint64_t pages = most / kPageBytes;
  return random() % 2 == 0 ? 0 : (random() % 2 == 0 ? pages : random() % (pages + 1)) * kPageBytes;
}

void RunRandomSteps(CachingProvider& provider, int steps, uint64_t seed) {
  std::mt19937_64 random(seed);
  constexpr std::byte kBorrowers{0x5a};
  const SequenceId sessions[] = {SequenceId(7), SequenceId(8), SequenceId(9)};
  for (const SequenceId sequence : sessions) provider.OnSequenceStart(sequence);
  uint64_t wanted = 0;
  for (int step = 0; step < steps; ++step) {
    const size_t batch = 1 + random() % std::size(sessions);
    OperateAtRandom(random, provider);
    const uint64_t capacity = provider.Stats().cache_capacity_bytes;
    const uint64_t loan = RandomLoan(random, provider);
    const std::span<std::byte> lent = provider.Lend(loan).value();
    ASSERT_EQ(lent.size(), loan);
    std::ranges::fill(lent, kBorrowers);
    for (const LayerId layer : kLayers) {
      Routing routing(layer);
      std::set<int32_t> expected;
      for (size_t s = 0; s < batch; ++s) {
        const float hidden = static_cast<float>(random() % 5);
        provider.OnGateInput(sessions[s], layer, {&hidden, 1});
        const std::vector<int32_t> chosen = RandomTopK(random, layer, hidden);
        expected.insert(chosen.begin(), chosen.end());
        routing.Add(sessions[s], chosen, s == 0 ? Phase::kDecode : Phase::kPrefill);
      }
      const Delivered delivered = RunLayer(provider, routing);
      EXPECT_TRUE(delivered.failures.empty());
      EXPECT_EQ(delivered.experts.size(), expected.size());
      EXPECT_EQ(std::set<int32_t>(delivered.experts.begin(), delivered.experts.end()), expected);
      EXPECT_LE(provider.Stats().cache_bytes, capacity);
      wanted += expected.size();
    }
    EXPECT_EQ(std::ranges::count(lent, kBorrowers), static_cast<std::ptrdiff_t>(loan));
    ExpectPinnedAreThere(provider);
    if (testing::Test::HasFailure()) return;
  }
  const auto lookups = Lookups(provider);
  EXPECT_EQ(lookups[0] + lookups[1] + lookups[2], wanted);
  for (const SequenceId sequence : sessions) provider.OnSequenceEnd(sequence);
}

// A cell of the matrix.
struct Cell {
  std::string_view policy, predictor;
  int capacity = 0;  // records
  uint64_t split = UINT64_MAX;
  bool fill = false;
};

void ServeIn(const Cell& cell, const Reading& reading) {
  SCOPED_TRACE(StrCat(cell.policy, ", ", cell.predictor, ", ", cell.capacity, " records, ", reading.name, ", split from ",
                      cell.split, cell.fill ? ", filled" : ""));
  PartContext context{.model = StoreContext(cell.capacity), .hidden = 1, .gate = NoisyGate};
  context.model.table_bytes = 1 << 16;
  ProviderOptions options = Records(cell.capacity);
  options.split_read_bytes = cell.split;
  options.queue.idle_piece_bytes = kPageBytes;
  options.most_bytes = kMostRecords * ExpertStore::Get().record_bytes();
  options.least_bytes = std::min(cell.capacity, kLeastRecords) * ExpertStore::Get().record_bytes();
  RigParts parts;
  parts.policy = MakePolicy(cell.policy, context).value();
  parts.predictor = MakePredictor(cell.predictor, context).value();
  PresetSetup setup;
  setup.fill = cell.fill;
  PresetParts popularity;
  popularity.policy = MakePolicy(cell.policy, context).value();
  popularity.predictor = MakePredictor(cell.predictor, context).value();
  parts.fill = FillOrder(setup, popularity, context.model);
  auto provider = MakeProvider(*reading.backend, options, std::move(parts));
  RunRandomSteps(*provider, 5, static_cast<uint64_t>(cell.capacity));
}

constexpr int kCapacities[] = {1, 2, kTopK - 1, kTopK, 12, 24};

// Every policy with every predictor at every capacity; ways of reading, splitting and filling are drawn. Each way of reading
// meets each capacity, and each predictor is split and whole, filled and not.
void ServeInEveryCombination() {
  const std::vector<Reading> readings = Readings();
  std::mt19937_64 random(29);
  std::set<std::pair<int, size_t>> read;
  std::set<std::tuple<std::string_view, bool, bool>> split_and_filled;
  size_t predictors = 0;
  for (const PredictorRow& predictor : Predictors()) {
    if (!predictor.mask.empty()) continue;  // with their mask alone: the presets' tests
    ++predictors;
    for (const PolicyRow& policy : Policies()) {
      if (!policy.mask.empty()) continue;
      for (const int capacity : kCapacities) {
        const size_t reading = random() % readings.size();
        const bool split = random() % 2 == 0, fill = random() % 2 == 0;
        read.emplace(capacity, reading);
        split_and_filled.emplace(predictor.name, split, fill);
        ServeIn({policy.name, predictor.name, capacity, split ? 1 : UINT64_MAX, fill}, readings[reading]);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_EQ(read.size(), std::size(kCapacities) * readings.size());
  EXPECT_EQ(split_and_filled.size(), 4 * predictors);
}

// The parts that serve where nothing else is said, at every capacity, however they are read.
void ServeAsAutoDoes() {
  const auto preset = std::ranges::find(Presets(), "auto", &PresetRow::name);
  ASSERT_NE(preset, Presets().end());
  for (const Reading& reading : Readings()) {
    for (const int capacity : kCapacities) {
      for (const uint64_t split : {uint64_t{1}, UINT64_MAX}) {
        ServeIn({preset->policy, preset->predictor, capacity, split, preset->fill}, reading);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(ProviderMatrix, EveryCombinationServesTheRightBytes) {
  ServeInEveryCombination();
  ServeAsAutoDoes();
}

TEST(ProviderMatrix, EveryCombinationServesTheRightBytesOfMixedFormats) {
  const ExpertStore::Mixed mixed;
  ServeInEveryCombination();
  ServeAsAutoDoes();
}

TEST(ProviderMatrix, EveryCombinationServesTheRightBytesOfCodedRecords) {
  const ExpertStore::Coded coded;
  ServeInEveryCombination();
  ServeAsAutoDoes();
}

TEST(ProviderMatrix, OfCodedRecordsTheBytesOfTheFileAreCounted) {
  const ExpertStore::Coded coded;
  const StoreReader& store = ExpertStore::Get().reader();
  auto backend = MakeThreadedReadBackend("memory", StoreFile(), 1);
  auto provider = MakeProvider(*backend, {.capacity_bytes = store.all_expert_bytes(), .split_read_bytes = 1});
  uint64_t read = 0;
  for (const LayerId layer : kLayers) {
    RunLayer(*provider, layer, {0, 3});
    read += store.stored_bytes({layer, 0}) + store.stored_bytes({layer, 3});
  }
  const ExpertStats stats = provider->Stats();
  EXPECT_EQ(stats.cache_bytes, 6 * ExpertStore::Get().record_bytes());
  EXPECT_EQ(stats.load_bytes[0][static_cast<size_t>(LoadReason::kDemand)], read);
  EXPECT_EQ(provider->sequence_counters(kSession).bytes_read, read);
  EXPECT_LE(read, stats.cache_bytes * 3 / 4);
}

// Of records that differ in size: what is read, and what the cache holds, are their own bytes and not the largest one's.
TEST(ProviderMatrix, BytesAreTheRecordsOwn) {
  const ExpertStore::Mixed mixed;
  const StoreReader& store = ExpertStore::Get().reader();
  std::set<uint64_t> sizes;
  for (const ExpertLayout& layout : store.description().precisions[kReferencePrecision].layers) sizes.insert(layout.record_bytes);
  ASSERT_EQ(sizes.size(), 3u);
  ManualReadBackend reads(1, StoreFile());
  auto provider = MakeProvider(reads, {.capacity_bytes = store.all_expert_bytes(), .split_read_bytes = UINT64_MAX});
  uint64_t read = 0;
  for (int round = 0; round < 2; ++round) {
    for (const LayerId layer : kLayers) {
      RunLayer(*provider, reads, layer, {0, 1, 2, 3, 4, 5, 6, 7});
      read += round == 0 ? kExperts * store.expert_bytes({layer, 0}) : 0;
      EXPECT_EQ(provider->sequence_counters(kSession).bytes_read, read);
      EXPECT_EQ(provider->Stats().load_bytes[0][static_cast<size_t>(LoadReason::kDemand)], read);
      EXPECT_EQ(provider->Stats().cache_bytes, read);
    }
  }
  EXPECT_EQ(read, store.all_expert_bytes());
  EXPECT_EQ(Lookups(*provider)[0], 24u) << "all of them fit";
}

TEST(ProviderMatrix, HitsAppearWhenEverythingFits) {
  auto backend = MakeThreadedReadBackend("memory", StoreFile(), 1);
  auto provider = MakeProvider(*backend, Records(24));
  for (int round = 0; round < 3; ++round) {
    for (const LayerId layer : kLayers) RunLayer(*provider, layer, {0, 1, 2, 3, 4, 5, 6, 7});
  }
  EXPECT_THAT(Lookups(*provider), testing::ElementsAre(48, 24, 0));
  EXPECT_EQ(provider->Stats().cache_bytes, 24 * ExpertStore::Get().record_bytes());
}

// Least recently used, in twenty lines.
class NaiveLru {
 public:
  explicit NaiveLru(size_t capacity) : capacity_(capacity) {}
  // Returns the hits.
  int Layer(LayerId layer, const std::vector<int32_t>& wanted) {
    int hits = 0;
    std::vector<ExpertKey> missing;
    for (const int32_t expert : wanted) {
      const ExpertKey key{layer, expert};
      if (std::erase(order_, key) == 0) {
        missing.push_back(key);
        continue;
      }
      ++hits;
      order_.push_front(key);
    }
    for (const ExpertKey& key : missing) order_.push_front(key);
    while (order_.size() > capacity_) order_.pop_back();
    return hits;
  }
  std::vector<ExpertKey> Contents() const {
    std::vector<ExpertKey> sorted(order_.begin(), order_.end());
    std::ranges::sort(sorted);
    return sorted;
  }

 private:
  const size_t capacity_;
  std::deque<ExpertKey> order_;
};

TEST(ProviderMatrix, LruAgreesWithItsNaiveTwin) {
  for (const int capacity : {kTopK, 5, 9, 17, 24}) {
    SCOPED_TRACE(StrCat(capacity, " records"));
    auto backend = MakeThreadedReadBackend("memory", StoreFile(), 1);
    auto provider = MakeProvider(*backend, Records(capacity));
    NaiveLru twin(capacity);
    std::mt19937_64 random(capacity);
    uint64_t hits = 0;
    for (int step = 0; step < 300; ++step) {
      const LayerId layer = kLayers[random() % std::size(kLayers)];
      const std::vector<int32_t> wanted = RandomTopK(random, layer, static_cast<float>(random() % 5));
      hits += twin.Layer(layer, wanted);
      RunLayer(*provider, layer, wanted);
      ASSERT_EQ(ResidentExperts(*provider), twin.Contents()) << "step " << step;
      ASSERT_EQ(Lookups(*provider)[0], hits);
    }
    EXPECT_EQ(provider->sequence_counters(kSession).hits, hits);
    EXPECT_EQ(provider->sequence_counters(kSession).misses, 300 * kTopK - hits);
    EXPECT_EQ(provider->sequence_counters(kSession).bytes_read, (300 * kTopK - hits) * ExpertStore::Get().record_bytes());
  }
}

TEST(ProviderMatrix, TooSmallOrSenselessOptionsAreRefused) {
  ManualReadBackend backend;
  ProviderOptions options = Records(1);
  EXPECT_TRUE(TryMakeProvider(backend, options).ok());
  --options.capacity_bytes;
  const auto refused = TryMakeProvider(backend, options);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageText(refused.status()), testing::HasSubstr(StrCat(ExpertStore::Get().record_bytes())));
  options = Records(1);
  options.queue.max_in_flight = -1;
  EXPECT_EQ(TryMakeProvider(backend, options).status().code(), absl::StatusCode::kInvalidArgument);
  for (const size_t bytes : {size_t{0}, kPageBytes - 1}) {
    options = Records(1);
    options.queue.idle_piece_bytes = bytes;
    EXPECT_EQ(TryMakeProvider(backend, options).status().code(), absl::StatusCode::kInvalidArgument);
  }
  options = Records(1);
  options.max_prefetch_loads = -1;
  EXPECT_EQ(TryMakeProvider(backend, options).status().code(), absl::StatusCode::kInvalidArgument);
  options = Records(1);
  options.min_prefetch_probability = NAN;
  EXPECT_EQ(TryMakeProvider(backend, options).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace provider_matrix_test
}  // namespace moed
