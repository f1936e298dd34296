// Counters, stall times and trace spans.
#include <atomic>
#include <climits>
#include <thread>

#include "absl/synchronization/notification.h"
#include "tests/expert/provider_rig.h"

namespace moed {
namespace stats_test {

using testing::ElementsAre;

// Says once that the thread that armed it has looked at the time: the moment before a wait begins.
class AnnouncingClock final : public Clock {
 public:
  int64_t NowNanos() const override {
    const int64_t now = time_.NowNanos();
    if (std::this_thread::get_id() == armed_by_ && !asked_->HasBeenNotified()) asked_->Notify();
    return now;
  }
  void Arm() {
    asked_ = std::make_unique<absl::Notification>();
    armed_by_ = std::this_thread::get_id();
  }
  void WaitUntilAsked() { asked_->WaitForNotification(); }
  void Advance(int64_t nanos) { time_.AdvanceNanos(nanos); }

 private:
  FakeClock time_;
  std::thread::id armed_by_;
  std::unique_ptr<absl::Notification> asked_;
};

class Stalls : public testing::Test {
 protected:
  std::unique_ptr<CachingProvider> Make(uint64_t split_read_bytes) {
    ProviderOptions options = Records(4);
    options.split_read_bytes = split_read_bytes;
    RigParts parts;
    parts.clock = &clock_;
    parts.trace = &trace_;
    return MakeProvider(reads_, options, std::move(parts));
  }
  // Runs `waits` while the device takes `nanos` from the moment it waits.
  template <class Function>
  void WhileTheDeviceTakes(int64_t nanos, Function&& waits) {
    clock_.Arm();
    std::thread device([&] {
      clock_.WaitUntilAsked();
      clock_.Advance(nanos);
      reads_.CompleteNext();
    });
    waits();
    device.join();
  }

  AnnouncingClock clock_;
  Trace trace_{clock_, 100};
  ManualReadBackend reads_{8, StoreFile()};
};

TEST_F(Stalls, WaitsBelongToTheStepsPhaseAndLayer) {
  auto provider = Make(UINT64_MAX);
  provider->OnSequenceStart(SequenceId(2));
  Routing prefill(kFirst, {1}, Phase::kPrefill);
  provider->Begin(prefill.Get());
  WhileTheDeviceTakes(2'000'000, [&] { EXPECT_EQ(provider->Next()->expert, 1); });
  Routing mixed(kSecond, {1}, Phase::kPrefill);
  mixed.Add(SequenceId(2), {1}, Phase::kDecode);
  provider->Begin(mixed.Get());
  WhileTheDeviceTakes(5'000'000, [&] { EXPECT_EQ(provider->Next()->expert, 1); });
  const ExpertStats stats = provider->Stats();
  EXPECT_DOUBLE_EQ(stats.stall_seconds[static_cast<int>(Phase::kPrefill)], .002);
  EXPECT_DOUBLE_EQ(stats.stall_seconds[static_cast<int>(Phase::kDecode)], .005);
  EXPECT_DOUBLE_EQ(stats.layers[0].stall_seconds, .002);
  EXPECT_DOUBLE_EQ(stats.layers[1].stall_seconds, .005);
  EXPECT_DOUBLE_EQ(provider->sequence_counters(kSession).stall_seconds, .007);
  EXPECT_DOUBLE_EQ(provider->sequence_counters(SequenceId(2)).stall_seconds, .005);
  EXPECT_EQ(stats.read_busy_nanos, 7'000'000);
  const LoadHistogram& demand = stats.loads[static_cast<int>(LoadReason::kDemand)];
  EXPECT_EQ(demand.count, 2u);
  EXPECT_DOUBLE_EQ(demand.sum_seconds, .007);
  EXPECT_EQ(demand.buckets[5], 1u);  // up to 2.5 ms
  EXPECT_EQ(demand.buckets[6], 1u);  // up to 5 ms
}

TEST_F(Stalls, WaitingForAPartCounts) {
  auto provider = Make(1);
  Routing routing(kFirst, {3});
  provider->Begin(routing.Get());
  ASSERT_TRUE(reads_.CompleteNext());
  const auto ready = provider->Next();
  EXPECT_DOUBLE_EQ(provider->Stats().stall_seconds[1], 0);
  ASSERT_TRUE(ready->handle.Part(ExpertPart::kUp).ok());
  EXPECT_DOUBLE_EQ(provider->Stats().stall_seconds[1], 0);
  WhileTheDeviceTakes(1'000'000, [&] { ASSERT_TRUE(ready->handle.Part(ExpertPart::kDown).ok()); });
  EXPECT_DOUBLE_EQ(provider->Stats().stall_seconds[1], .001);
}

TEST_F(Stalls, TheTraceShowsReadsAndWaits) {
  ProviderOptions options = Records(4);
  options.queue.max_in_flight = 1;
  RigParts parts;
  parts.clock = &clock_;
  parts.trace = &trace_;
  auto provider = MakeProvider(reads_, options, std::move(parts));
  Routing routing(kFirst, {3, 6});
  provider->Begin(routing.Get());
  clock_.Advance(1000);
  ASSERT_TRUE(reads_.CompleteNext());  // only now does the second go to the device
  EXPECT_EQ(provider->Next()->expert, 3);
  WhileTheDeviceTakes(500, [&] { EXPECT_EQ(provider->Next()->expert, 6); });
  std::map<std::pair<std::string, int>, TraceEvent> events;
  for (const TraceEvent& event : trace_.Events()) events.emplace(std::pair(event.name, event.expert), event);
  ASSERT_EQ(events.size(), 3u);
  const TraceEvent& first = events.at({"read", 3});
  const TraceEvent& second = events.at({"read", 6});
  const TraceEvent& wait = events.at({"wait", -1});
  EXPECT_EQ(std::pair(first.begin_nanos, first.end_nanos), std::pair(int64_t{0}, int64_t{1000}));
  EXPECT_EQ(std::pair(second.begin_nanos, second.end_nanos), std::pair(int64_t{1000}, int64_t{1500}));
  EXPECT_EQ(std::pair(wait.begin_nanos, wait.end_nanos), std::pair(int64_t{1000}, int64_t{1500}));
  EXPECT_EQ(first.track, kReadTrack);
  EXPECT_EQ(first.bytes, ExpertStore::Get().record_bytes());
  EXPECT_EQ(first.layer, kFirst.value());
  EXPECT_EQ(wait.track, kComputeTrack);
  EXPECT_EQ(wait.layer, kFirst.value());
}

TEST(Counters, LookupsGoToDecodeIfAnyDecodeTokenWantsTheExpert) {
  auto backend = MakeThreadedReadBackend("memory", StoreFile(), 1);
  auto provider = MakeProvider(*backend, Records(24));
  provider->OnSequenceStart(SequenceId(2));
  RunLayer(*provider, kSecond, {7});
  Routing routing(kSecond, {1, 2, 7}, Phase::kPrefill);
  routing.Add(SequenceId(2), {2, 3}, Phase::kDecode);
  RunLayer(*provider, routing);
  const LayerStats stats = provider->Stats().layers[1];
  EXPECT_EQ(stats.layer, kSecond);
  EXPECT_THAT(stats.lookups[static_cast<int>(Phase::kPrefill)], ElementsAre(1, 1, 0));  // 7, 1
  EXPECT_THAT(stats.lookups[static_cast<int>(Phase::kDecode)], ElementsAre(0, 3, 0));   // the first 7, then 2 and 3
  EXPECT_EQ(provider->sequence_counters(kSession).hits, 1u);
  EXPECT_EQ(provider->sequence_counters(kSession).misses, 3u);
  EXPECT_EQ(provider->sequence_counters(SequenceId(2)).misses, 2u);
  EXPECT_THAT(stats.resident, ElementsAre(4, 0));
}

TEST(Counters, EndedSequencesAreForgotten) {
  auto backend = MakeThreadedReadBackend("memory", StoreFile(), 1);
  auto provider = MakeProvider(*backend, Records(24));
  RunLayer(*provider, kFirst, {1, 2});
  EXPECT_EQ(provider->sequence_counters(kSession).misses, 2u);
  provider->OnSequenceEnd(kSession);
  EXPECT_EQ(provider->sequence_counters(kSession).misses, 0u);
  provider->OnSequenceStart(kSession);
  RunLayer(*provider, kFirst, {1, 2});  // what was cached stays
  EXPECT_EQ(provider->sequence_counters(kSession).hits, 2u);
}

TEST(Counters, HottestExpertsComeFirst) {
  auto backend = MakeThreadedReadBackend("memory", StoreFile(), 1);
  auto provider = MakeProvider(*backend, Records(1));
  for (const int expert : {4, 4, 2, 4, 2, 6}) RunLayer(*provider, kFirst, {expert});
  const std::vector<ExpertHeat> hottest = provider->HottestExperts(2);
  ASSERT_EQ(hottest.size(), 2u);
  EXPECT_EQ(hottest[0].key, (CachedKey{kFirst, 4}));
  EXPECT_EQ(hottest[0].uses, 3u);
  EXPECT_FALSE(hottest[0].resident);
  EXPECT_EQ(hottest[1].key.expert, 2);
  EXPECT_EQ(provider->HottestExperts(100).size(), 3u);
  EXPECT_TRUE(provider->HottestExperts(100)[2].resident);
  EXPECT_TRUE(provider->HottestExperts(-1).empty());
}

LayerCells CellsOf(const CachingProvider& provider, LayerId layer, uint64_t since) {
  for (const LayerCells& cells : provider.ChangedExperts(since).layers) {
    if (cells.layer == layer) return cells;
  }
  ADD_FAILURE() << "no layer " << layer.value();
  return {};
}

TEST(ExpertMap, TellsAllAndThenWhatChanged) {
  auto backend = MakeThreadedReadBackend("memory", StoreFile(), 1);
  auto provider = MakeProvider(*backend, Records(1));
  EXPECT_EQ(CellsOf(*provider, kThird, 0).experts.size(), size_t{kExperts});
  for (const int expert : {4, 4, 2}) RunLayer(*provider, kFirst, {expert});

  const uint64_t now = provider->ChangedExperts(0).now;
  const std::vector<ExpertCell> all = CellsOf(*provider, kFirst, 0).experts;
  ASSERT_EQ(all.size(), size_t{kExperts});
  const auto counts = [](const ExpertCell& cell) { return std::array{cell.hits, cell.misses, cell.reads}; };
  EXPECT_THAT(counts(all[4]), ElementsAre(1, 1, 1));
  EXPECT_THAT(counts(all[2]), ElementsAre(0, 1, 1));
  EXPECT_THAT(counts(all[0]), ElementsAre(0, 0, 0));
  EXPECT_EQ(all[4].resident, 0u) << "2 has taken its place";
  EXPECT_EQ(all[2].resident, 1u);

  EXPECT_TRUE(CellsOf(*provider, kFirst, now).experts.empty());
  RunLayer(*provider, kSecond, {6});
  const std::vector<ExpertCell> evicted = CellsOf(*provider, kFirst, now).experts;
  ASSERT_EQ(evicted.size(), 1u);
  EXPECT_EQ(evicted[0].expert, 2);
  EXPECT_EQ(evicted[0].resident, 0u);
  ASSERT_EQ(CellsOf(*provider, kSecond, now).experts.size(), 1u);
  EXPECT_EQ(CellsOf(*provider, kFirst, provider->ChangedExperts(now).now + 1).experts.size(), size_t{kExperts})
      << "of another process";
  const auto next = MakeProvider(*backend, Records(1));
  for (const uint64_t since : {now, provider->ChangedExperts(0).now}) {
    EXPECT_EQ(CellsOf(*next, kFirst, since).experts.size(), size_t{kExperts}) << "of another model";
  }
}

TEST(Counters, EvictionsLoadsAndBytesAddUp) {
  auto backend = MakeThreadedReadBackend("memory", StoreFile(), 1);
  auto provider = MakeProvider(*backend, Records(5));
  for (int i = 0; i < 30; ++i) RunLayer(*provider, kLayers[i % 3], {i % 8, (i + 1) % 8});
  const ExpertStats stats = provider->Stats();
  const auto lookups = Lookups(*provider);
  uint64_t residents = 0;
  for (const LayerStats& layer : stats.layers) residents += layer.resident[0];
  EXPECT_EQ(lookups[0] + lookups[1], 60u);
  EXPECT_EQ(stats.loads[0].count, lookups[1]);
  EXPECT_EQ(stats.load_bytes[0][0], lookups[1] * ExpertStore::Get().record_bytes());
  EXPECT_EQ(residents + stats.evictions[0][0], stats.loads[0].count);
  EXPECT_EQ(residents, 5u);
  EXPECT_EQ(stats.cache_capacity_bytes, 5 * ExpertStore::Get().record_bytes());
}

// With every record of both precisions resident, filled or guessed, and every expert of a layer wanted at once.
TEST(Counters, TablesStayWithinTheirBoundAndNearIt) {
  auto backend = MakeThreadedReadBackend("memory", StoreFile(), 1);
  RigParts parts;
  std::map<LayerId, std::vector<Guess>> script;
  std::vector<int32_t> experts;
  for (int32_t e = 0; e < kExperts; ++e) {
    experts.push_back(e);
    script[kFirst].push_back({{kSecond, e}, .9f});
    for (const LayerId layer : kLayers) {
      for (const Precision precision : {0, 1}) parts.fill.push_back({layer, e, precision});
    }
  }
  parts.predictor = std::make_unique<ScriptedPredictor>(std::move(script));
  ProviderOptions options = Records(48);
  options.max_prefetch_loads = INT_MAX;
  auto provider = MakeProvider(*backend, options, std::move(parts));
  const uint64_t bound = CachingProvider::CacheTableBytes(ExpertStore::Get().reader().description());
  EXPECT_LE(provider->table_bytes(), bound);
  for (const LayerId layer : kLayers) RunLayer(*provider, layer, experts);
  EXPECT_LE(provider->table_bytes(), bound);
  EXPECT_GT(provider->table_bytes(), bound / 2);
}

TEST(Counters, MayBeReadWhileLayersRun) {
  auto backend = MakeThreadedReadBackend("memory", StoreFile(), 2);
  auto provider = MakeProvider(*backend, Records(4));
  std::atomic<bool> done = false;
  std::thread reader([&] {
    uint64_t before = 0, happenings = 0;
    while (!done) {
      const uint64_t now = provider->Stats().loads[0].count;
      EXPECT_GE(now, before);
      before = now;
      provider->HottestExperts(3);
      happenings = provider->ChangedExperts(happenings).now;
      provider->sequence_counters(kSession);
    }
  });
  for (int i = 0; i < 100; ++i) RunLayer(*provider, kLayers[i % 3], {i % 8, (i + 3) % 8, (i + 5) % 8});
  done = true;
  reader.join();
}

}  // namespace stats_test
}  // namespace moed
