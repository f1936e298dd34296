// Every preset on stores of one and of two precisions.
#include "core/expert/presets/preset.h"

#include <fstream>
#include <set>

#include "absl/strings/str_format.h"
#include "core/expert/cache/fill_order.h"
#include "core/expert/memory_plan.h"
#include "core/expert/policies/hobbit.h"
#include "tests/expert/provider_rig.h"

namespace moed {
namespace preset_test {

using testing::AllOf;
using testing::HasSubstr;

class PresetTest : public testing::Test {
 protected:
  PresetTest() {
    std::ofstream(folder_ / "widths.json") << absl::StrFormat(
        R"({"model_hash":"%016x","precisions":[[0,1,0,1,0,1,0,1],[0,1,0,1,0,1,0,1],[0,1,0,1,0,1,0,1]]})", store_.model_hash());
    StoreDescription one = ExpertStore::Get().description();
    one.precisions.resize(1);
    auto writer = StoreWriter::Open(folder_ / "one.moed", one, {});
    MOED_CHECK(writer.ok());
    WriteNorms(**writer, one);
    WritePieces(**writer, one);
    MOED_CHECK((*writer)->Finish().ok());
    one_precision_ = StoreReader::Open(folder_ / "one.moed").value();
  }

  PartOptions OptionsFor(const PresetRow& row) const {
    if (row.rule == "widths") return PartOptions::Parse("widths=" + (folder_ / "widths.json")).value();
    return {};
  }
  absl::Status Refusal(const std::string& preset, const std::string& options, const StoreReader& store) const {
    const auto setup = ChoosePreset({.preset = preset, .options = PartOptions::Parse(options).value()}, store);
    return setup.ok() ? MakePresetParts(*setup, StoreParts()).status() : setup.status();
  }

  MemoryFolder folder_;
  const StoreReader& store_ = ExpertStore::Get().reader();
  std::unique_ptr<StoreReader> one_precision_;
};

TEST_F(PresetTest, NamesAreDistinctAndPartsExist) {
  std::set<std::string_view> names;
  for (const PresetRow& row : Presets()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.description.empty()) << row.name;
  }
  for (const char* name :
       {"auto", "edgemoe", "hobbit", "fate", "load-on-demand", "load-on-demand-lru", "eap", "eap-lru", "swapmoe", "swapmoe-equal",
        "swapmoe-tokens", "swapmoe-pruning", "io-free", "io-qfree", "io-exp", "io-exp-lru", "io-qexp", "io-qexp-lru", "sti"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST_F(PresetTest, EveryRowServesSequencesOfEveryClass) {
  for (const PresetRow& row : Presets()) {
    SCOPED_TRACE(std::string(row.name));
    const auto setup = ChoosePreset({.preset = std::string(row.name), .options = OptionsFor(row)}, store_);
    ASSERT_TRUE(setup.ok()) << setup.status();
    auto made = MakePresetParts(*setup, StoreParts());
    ASSERT_TRUE(made.ok()) << made.status();
    auto reads = MakeThreadedReadBackend("memory", StoreFile(), 2);
    RigParts parts;
    parts.fill = FillOrder(*setup, *made, StoreContext());
    parts.policy = std::move(made->policy);
    parts.predictor = std::move(made->predictor);
    parts.mask = std::move(made->mask);
    parts.fidelity = std::move(made->rule);
    ProviderOptions options = Records(row.cache == CacheKind::kAll ? 24 : kTopK);
    options.most_wanted_first = row.most_wanted_first;
    options.whole_layers = row.whole_layers;
    auto provider = MakeProvider(*reads, options, std::move(parts));
    for (const uint64_t sequence : {2, 3}) provider->OnSequenceStart(SequenceId(sequence));
    const std::vector<float> hidden(96, .5f);
    for (int step = 0; step < 30; ++step) {
      const LayerId layer = kLayers[step % 3];
      if (step % 3 == 0) {
        for (const uint64_t sequence : {1, 2, 3}) provider->OnToken(SequenceId(sequence), TokenId(step % 7));
      }
      for (const uint64_t sequence : {1, 2, 3}) provider->OnGateInput(SequenceId(sequence), layer, hidden);
      const Phase phase = step < 6 ? Phase::kPrefill : Phase::kDecode;
      Routing routing(layer, {step % 8, (step + 3) % 8, (step + 5) % 8, (step + 6) % 8}, phase, Fidelity::Exact());
      routing.Add(SequenceId(2), {(step + 1) % 8, (step + 2) % 8, (step + 4) % 8, (step + 7) % 8}, phase, setup->fidelity);
      routing.Add(SequenceId(3), {(step + 1) % 8, (step + 2) % 8, (step + 5) % 8, step % 8}, phase, Fidelity::Bounded(.25f));
      const LayerRouting wanted = routing.Get();
      provider->Begin(wanted);
      std::map<int32_t, Precision> used;
      while (auto ready = provider->Next()) {
        ExpectRightBytes(*ready, layer);
        used[ready->expert] = ready->precision;
      }
      for (const ExpertChoice& choice : wanted.tokens[0].choices) {
        ASSERT_TRUE(used.contains(choice.expert));
        EXPECT_EQ(used[choice.expert], kReferencePrecision);
      }
    }
    EXPECT_EQ(provider->sequence_counters(kSession).gate_mass_lost, 0);
    const SequenceCounters bounded = provider->sequence_counters(SequenceId(3));
    EXPECT_LE(bounded.gate_mass_lost, .25 * static_cast<double>(bounded.routed_tokens));
    if (setup->fidelity.exact()) {
      EXPECT_EQ(provider->sequence_counters(SequenceId(2)).gate_mass_lost, 0);
    }
  }
}

TEST_F(PresetTest, AStoreWithoutAPrecisionIsRefusedWithThePackThatMakesIt) {
  int refused = 0;
  for (const PresetRow& row : Presets()) {
    const auto setup = ChoosePreset({.preset = std::string(row.name), .options = OptionsFor(row)}, *one_precision_);
    if (setup.ok()) continue;
    ++refused;
    EXPECT_TRUE(absl::IsFailedPrecondition(setup.status())) << row.name;
    EXPECT_THAT(MessageText(setup.status()),
                AllOf(HasSubstr(row.name), HasSubstr("moed-pack"), HasSubstr("--expert-formats q8,q2"), HasSubstr("one.moed")));
  }
  EXPECT_EQ(refused, 6);  // edgemoe, hobbit, fate, io-qfree, io-qexp and its variant
}

TEST_F(PresetTest, UnknownNamesAndOptionsListTheKnownOnes) {
  EXPECT_THAT(MessageText(Refusal("hobit", "", store_)), AllOf(HasSubstr("hobit"), HasSubstr("auto, edgemoe, hobbit")));
  EXPECT_THAT(MessageText(Refusal("hobbit", "hobit-t1=1", store_)),
              AllOf(HasSubstr("hobit-t1"), HasSubstr("hobbit-t1, hobbit-t2")));
  EXPECT_THAT(MessageText(Refusal("io-exp", "hobbit-t1=1", store_)), HasSubstr("none are known here"));
  EXPECT_THAT(MessageText(Refusal("hobbit", "hobbit-t1=0.9,hobbit-t2=0.1", store_)), HasSubstr("T1 <= T2"));
  EXPECT_THAT(MessageText(Refusal("hobbit", "hobbit-lru=1", store_)), HasSubstr("sum to"));
  EXPECT_TRUE(Refusal("hobbit", "hobbit-lru=1,hobbit-lfu=0,hobbit-lhu=0,hobbit-fld=0,stacked-gate-layers=1", store_).ok());
  EXPECT_FALSE(Refusal("eap", "paths=/no/such/file", store_).ok());
  EXPECT_THAT(MessageText(Refusal("edgemoe", "", store_)), HasSubstr("widths"));
}

TEST_F(PresetTest, OptionsThatDoNotDoAreToldBeforeThereIsAStore) {
  const struct {
    const char *preset, *options, *said;
  } kCases[] = {
      {"hobbit", "hobbit-t1=0.9,hobbit-t2=0.1", "T1 <= T2"},
      {"hobbit", "hobbit-lru=0.7", "sum to 0.99"},
      {"hobbit", "stacked-gate-layers=2.5", "stacked-gate-layers: \"2.5\" is not a whole number"},
      {"fate", "fate-shallow-layers=0.5", "is not a whole number"},
      {"swapmoe", "swap-window=1.5", "is not a whole number"},
      {"swapmoe", "swap-least-window=4.5", "is not a whole number"},
      {"swapmoe", "swap-judged-steps=2.5", "is not a whole number"},
      {"swapmoe", "swap-updates=off,swap-fade=0.1", "swap-fade: without swap-updates"},
      {"edgemoe", "", "moed-plan widths"},
  };
  for (const auto& [preset, options, said] : kCases) {
    const auto setup = ChoosePreset({.preset = preset, .options = PartOptions::Parse(options).value()});
    EXPECT_TRUE(absl::IsInvalidArgument(setup.status())) << options;
    EXPECT_THAT(MessageText(setup.status()), HasSubstr(said));
  }
  for (const auto& [preset, options] : {std::pair("hobbit", "hobbit-plan=of.json,hobbit-t1=0.95,hobbit-lru=0.1"),
                                        std::pair("edgemoe", "widths=of.json"), std::pair("swapmoe", "swap-growth=1.5")}) {
    EXPECT_TRUE(ChoosePreset({.preset = preset, .options = PartOptions::Parse(options).value()}).ok()) << options;
  }
}

// Of options and a file what is given counts, and of what is not given the file.
TEST_F(PresetTest, APlanOfHobbitSaysWhatIsNotGiven) {
  const std::string path = folder_ / "hobbit.json";
  std::ofstream(path) << absl::StrFormat(
      R"({"model_hash":"%016x","t1":0.3,"t2":0.5,"lru":0.4,"lfu":0.3,"lhu":0.2,"fld":0.1,"high_cache":0.8})",
      store_.model_hash());
  const auto choose = [&](const std::string& given) {
    return ChoosePreset({.preset = "hobbit", .options = PartOptions::Parse("hobbit-plan=" + path + given).value()}, store_);
  };
  const auto tuning = [&](const std::string& given) { return HobbitTuningOf(choose(given)->options).value(); };
  EXPECT_EQ(tuning("").weights.lru, 0.4);
  EXPECT_EQ(tuning("").high_cache, 0.8);
  const HobbitTuning mixed = tuning(",hobbit-lru=0.1,hobbit-lfu=0.6,hobbit-high-cache=0.7");
  EXPECT_EQ(mixed.weights.lru, 0.1);
  EXPECT_EQ(mixed.weights.lfu, 0.6);
  EXPECT_EQ(mixed.weights.lhu, 0.2);
  EXPECT_EQ(mixed.weights.fld, 0.1);
  EXPECT_EQ(mixed.high_cache, 0.7);
  EXPECT_THAT(MessageText(choose(",hobbit-lru=0.1").status()), AllOf(HasSubstr("sum to 0.7"), HasSubstr("the plan's")));
  EXPECT_THAT(MessageText(choose(",hobbit-t1=0.6").status()), HasSubstr("T1 <= T2"));
}

TEST_F(PresetTest, PartsAskedForByNameReplaceThePresets) {
  const PresetSetup setup =
      ChoosePreset({.preset = "hobbit", .policy = "lru", .predictor = "none", .rule = "exact"}, *one_precision_).value();
  EXPECT_EQ(setup.policy->name, "lru");
  EXPECT_EQ(setup.predictor->name, "none");
  EXPECT_EQ(setup.rule->name, "exact");
  EXPECT_EQ(setup.fidelity, Fidelity::Exact());
  EXPECT_EQ(ChoosePreset({.rule = "hobbit"}, store_)->fidelity, Fidelity::Fast());
  EXPECT_EQ(ChoosePreset({}, store_)->fidelity, Fidelity::Exact());
  EXPECT_FALSE(ChoosePreset({.policy = "mru"}, store_).ok() &&
               MakePresetParts(*ChoosePreset({.policy = "mru"}, store_), StoreParts()).ok());
}

TEST_F(PresetTest, CachesOfOneTokenAndOfAllExperts) {
  const auto bounds = [&](const char* name) {
    return BoundsOfCache(ChoosePreset({.preset = name}, store_).value(), store_.description(), kTopK);
  };
  const uint64_t high = store_.largest_expert_bytes(0);
  const uint64_t low = store_.largest_expert_bytes(1);
  EXPECT_EQ(bounds("auto").least + bounds("auto").most, 0u);
  EXPECT_EQ(bounds("load-on-demand").most, kTopK * high);
  EXPECT_EQ(bounds("io-qexp").most, kTopK * low);
  EXPECT_EQ(bounds("io-free").least, 24 * high);
  EXPECT_EQ(bounds("io-qfree").least, 24 * low);
  EXPECT_EQ(bounds("swapmoe").least, 4 * high);  // one for each of three layers and a spare one
}

TEST_F(PresetTest, TheMemoryPlanKeepsTheBounds) {
  MemoryNeeds needs{.trunk = 1000, .kv_page = 10, .page_tokens = 16, .record = 100, .all_experts = 2400, .model_context = 256};
  const MemoryRequest request{.budget = 3000, .top_k = 4};
  needs.most_cache = 400;
  EXPECT_EQ(PlanMemory(needs, request)->cache, 400u);
  needs.most_cache = 0;
  needs.least_cache = 2400;
  const absl::Status status = PlanMemory(needs, request).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(MessageText(status), HasSubstr("the smallest budget that works: 3560 bytes"));
  EXPECT_EQ(PlanMemory(needs, {.budget = 3560, .top_k = 4})->cache, 2400u);
}

}  // namespace preset_test
}  // namespace moed
