// The builder hands on everything that it is given.
#include "core/expert/builder/build_provider.h"

#include <filesystem>

#include "core/expert/routing_trace.h"
#include "tests/expert/provider_rig.h"
#include "tests/file_text.h"

namespace moed {
namespace build_provider_test {

using testing::HasSubstr;

ProviderInputs InputsFor(ReadBackend& reads, int records) {
  ProviderInputs inputs;
  inputs.store = &ExpertStore::Get().reader();
  inputs.reads = &reads;
  inputs.router = {kTopK, StoreParts().hidden};
  inputs.gate = StoreParts().gate;
  inputs.options = Records(records);
  return inputs;
}

PresetSetup Choose(const PresetChoice& choice) { return ChoosePreset(choice, ExpertStore::Get().reader()).value(); }

std::unique_ptr<CachingProvider> Build(const PresetChoice& choice, const ProviderInputs& inputs) {
  auto provider = BuildProvider(Choose(choice), inputs);
  MOED_CHECK(provider.ok());
  (*provider)->OnSequenceStart(kSession);
  return *std::move(provider);
}

TEST(BuildProvider, EveryReadIsVerifiedWhereThatIsAskedFor) {
  for (const bool always : {false, true}) {
    const auto file = StoreFile();
    const auto reads = MakeThreadedReadBackend("lying", file, 1);
    ProviderInputs inputs = InputsFor(*reads, 1);
    inputs.options.checksums = always ? ChecksumRule::kEveryRead : ChecksumRule::kFirstRead;
    const auto provider = Build({.preset = "load-on-demand-lru"}, inputs);
    RunLayer(*provider, kFirst, {3});
    RunLayer(*provider, kFirst, {4});  // takes its slot
    file->FlipBit(ExpertStore::Get().OffsetOf(kFirst, 3), 0);
    Routing routing(kFirst, {3});
    provider->Begin(routing.Get());
    const auto ready = provider->Next();
    ASSERT_TRUE(ready.has_value());
    absl::Status status = ready->status;
    for (int part = 0; part < kExpertParts && status.ok(); ++part)
      status = ready->handle.Part(static_cast<ExpertPart>(part)).status();
    EXPECT_EQ(status.ok(), !always);
    EXPECT_FALSE(provider->Next().has_value());
  }
}

TEST(BuildProvider, RecordsWhatIsRouted) {
  const MemoryFolder folder;
  const RoutingShape shape{{std::begin(kLayers), std::end(kLayers)}, kTopK, kExperts, ExpertStore::Get().record_bytes()};
  const auto recorder = RoutingRecorder::Create(folder / "trace", shape, /*budget=*/1 << 30).value();
  const auto reads = MakeThreadedReadBackend("memory", StoreFile(), 1);
  ProviderInputs inputs = InputsFor(*reads, 24);
  inputs.recorder = recorder.get();
  const auto provider = Build({.preset = "load-on-demand-lru"}, inputs);
  for (int answer = 0; answer < 2; ++answer) {
    provider->OnToken(kSession, TokenId(answer));
    for (const LayerId layer : kLayers) RunLayer(*provider, layer, {0, 1, 2, 3});
    provider->OnSequencePause(kSession);
  }
  provider->OnSequenceEnd(kSession);
  ASSERT_TRUE(recorder->Finish().ok());
  EXPECT_EQ(std::filesystem::file_size(folder / "trace/experts.u8"), 2 * std::size(kLayers) * kTopK);
  const std::string index = ReadFileText(folder / "trace/index.jsonl");
  EXPECT_EQ(std::ranges::count(index, '\n'), 2) << "a conversation that waits holds none";
}

TEST(BuildProvider, FillsAsThePresetSays) {
  for (const bool fill : {false, true}) {
    ManualReadBackend reads(1, StoreFile());
    const auto provider = Build({.preset = "load-on-demand-lru", .fill = fill}, InputsFor(reads, 24));
    EXPECT_EQ(reads.pending().size(), fill ? 1u : 0u);
    reads.CompleteAll();
  }
}

TEST(BuildProvider, ReadsTheMostWantedFirstAsThePresetSays) {
  for (const char* preset : {"fate", "load-on-demand-lru"}) {
    ManualReadBackend reads(1, StoreFile());
    ProviderInputs inputs = InputsFor(reads, 24);
    inputs.options.queue.max_in_flight = 1;
    const auto provider = Build({.preset = preset, .predictor = "none"}, inputs);
    Routing routing(kFirst, {1, 2}, Phase::kPrefill);
    routing.Add(kSession, {2, 3}, Phase::kPrefill);
    provider->Begin(routing.Get());
    const int32_t first = preset == std::string_view("fate") ? 2 : 1;
    EXPECT_THAT(reads.pending(), testing::ElementsAre(ExpertStore::Get().OffsetOf(kFirst, first))) << preset;
    Drain(*provider, reads);
  }
}

TEST(BuildProvider, PartsMayBeReplacedBeforeItTakesThem) {
  ManualReadBackend reads(1, StoreFile());
  const ProviderInputs inputs = InputsFor(reads, 24);
  const PresetSetup setup = Choose({.preset = "load-on-demand-lru"});
  PresetParts parts = MakeParts(setup, inputs).value();
  parts.predictor = std::make_unique<ScriptedPredictor>(std::map<LayerId, std::vector<Guess>>{{kFirst, {{{kSecond, 5}, .9f}}}});
  const auto provider = BuildProvider(setup, inputs, std::move(parts)).value();
  provider->OnSequenceStart(kSession);
  RunLayer(*provider, reads, kFirst, {0});
  EXPECT_EQ(provider->Stats().loads[static_cast<size_t>(LoadReason::kPrefetch)].count, 1u);
}

TEST(BuildProvider, PartsThatShareStateAreMadeTogetherAndAnew) {
  const auto reads = MakeThreadedReadBackend("memory", StoreFile(), 1);
  const PresetSetup setup = Choose({.preset = "swapmoe"});
  const ProviderInputs inputs = InputsFor(*reads, 12);
  PresetParts first = MakeParts(setup, inputs).value();
  PresetParts second = MakeParts(setup, inputs).value();
  const auto due = [](PresetParts& parts) {
    std::vector<Guess> loads;
    parts.predictor->Predict(kSession, kFirst, loads);
    return loads.size();
  };
  for (const LayerId layer : kLayers) {
    for (int32_t expert = 0; expert < kExperts; ++expert) first.policy->OnInsert({layer, expert}, 1);
  }
  EXPECT_EQ(due(first), 0u) << "its predictor knows what its policy was told";
  EXPECT_GT(due(second), 0u) << "another provider's does not";
}

TEST(BuildProvider, PartsOfOneMaskGoWithNoOther) {
  const StoreReader& store = ExpertStore::Get().reader();
  for (const PresetChoice& choice : {PresetChoice{.policy = "swapmoe"}, PresetChoice{.predictor = "swapmoe"}}) {
    const absl::Status status = ChoosePreset(choice, store).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(MessageText(status), HasSubstr("works with the router mask \"swapmoe\" alone"));
  }
}

}  // namespace build_provider_test
}  // namespace moed
