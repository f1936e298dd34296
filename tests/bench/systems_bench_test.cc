// moe-bench systems without a daemon: what is compared, the journal, quality, tables.
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "bench/systems/ablations.h"
#include "bench/systems/cells.h"
#include "bench/systems/contender.h"
#include "bench/systems/energy_meter.h"
#include "bench/systems/journal.h"
#include "bench/systems/quality.h"
#include "bench/systems/report.h"
#include "bench/systems/targets.h"
#include "core/base/status.h"
#include "core/expert/presets/preset.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace moed {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

class TempFolder {
 public:
  TempFolder() : path_(testing::TempDir() + "/systems_bench_" + std::to_string(getpid()) + "_" + std::to_string(++count_)) {
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  static inline int count_ = 0;
  const std::string path_;
};

void Write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

TEST(ContendersTest, AllIsEveryPresetAndAutoInSeveralWays) {
  const auto all = ParseContenders("all");
  ASSERT_TRUE(all.ok());
  std::set<std::string> names;
  for (const Contender& contender : *all) names.insert(contender.name());
  for (const PresetRow& row : Presets()) EXPECT_TRUE(names.contains(std::string(row.name))) << row.name;
  EXPECT_TRUE(names.contains("auto+learned"));
  EXPECT_TRUE(names.contains("auto@bounded:0.1"));
  EXPECT_TRUE(names.contains("load-on-demand-lru+policy=lfu"));
  EXPECT_TRUE(names.contains("fate+predictor=none@exact"));
  EXPECT_TRUE(ParseContenders("auto@exact,auto@fast,auto@bounded:0.25,hobbit").ok());
}

TEST(ContendersTest, NamesSayWhatIsReplaced) {
  const auto contenders = ParseContenders("hobbit+policy=lru+stacked-gate-layers=1@bounded:0.5,auto+learned");
  ASSERT_TRUE(contenders.ok()) << contenders.status();
  const Contender& hobbit = contenders->front();
  EXPECT_EQ(hobbit.preset, "hobbit");
  EXPECT_EQ(hobbit.parts, (std::vector<NamedValue>{{"policy", "lru"}}));
  EXPECT_EQ(hobbit.options, (std::vector<NamedValue>{{"stacked-gate-layers", "1"}}));
  EXPECT_EQ(hobbit.name(), "hobbit+policy=lru+stacked-gate-layers=1@bounded:0.5");
  EXPECT_FALSE(hobbit.plain());
  EXPECT_TRUE(contenders->back().learned);
  EXPECT_TRUE(contenders->back().plain());
  EXPECT_EQ(DaemonFlags(hobbit, hobbit.options),
            (std::vector<std::string>{"--preset", "hobbit", "--policy", "lru", "--preset-options", "stacked-gate-layers=1"}));
}

TEST(ContendersTest, ErrorsSayWhatIsAllowed) {
  EXPECT_THAT(MessageOf(ParseContenders("auto,nobody").status()),
              HasSubstr("\"nobody\"; known are: all, ablations, auto, edgemoe"));
  EXPECT_THAT(MessageOf(ParseContenders("auto,auto").status()), HasSubstr("twice"));
  EXPECT_THAT(MessageOf(ParseContenders("auto@loose").status()), HasSubstr("expected exact, fast-matmul, bounded:X"));
  EXPECT_THAT(MessageOf(ParseContenders("auto+policy=best").status()), HasSubstr("unknown policy \"best\"; known are: lru"));
  EXPECT_THAT(MessageOf(ParseContenders("auto+fill-cache=perhaps").status()), HasSubstr("known are: on, off"));
  EXPECT_THAT(MessageOf(ParseContenders("auto+policy").status()), HasSubstr("NAME one of policy, predictor, fidelity-rule"));
}

TEST(ContendersTest, OptionsGoToWhoKnowsThem) {
  EXPECT_THAT(MessageOf(ParseGivenOptions({"edgemoe"}).status()), HasSubstr("expected [PRESET:]NAME=VALUE"));
  EXPECT_THAT(MessageOf(ParseGivenOptions({"nobody:a=b"}).status()), HasSubstr("unknown preset"));
  const auto given = ParseGivenOptions({"widths=w", "edgemoe:paths=p", "hobbit-t1=0.5"});
  ASSERT_TRUE(given.ok()) << given.status();
  const auto of = [&given](const std::string& name) { return OptionsOf(ParseContenders(name)->front(), *given, 25); };
  EXPECT_EQ(of("edgemoe"), (std::vector<NamedValue>{{"widths", "w"}, {"paths", "p"}}));
  EXPECT_EQ(of("edgemoe+fidelity-rule=exact"), (std::vector<NamedValue>{{"paths", "p"}}));
  EXPECT_EQ(of("load-on-demand+fidelity-rule=widths"), (std::vector<NamedValue>{{"widths", "w"}}));
  EXPECT_EQ(of("eap"), (std::vector<NamedValue>{})) << "paths are for edgemoe alone";
  EXPECT_EQ(of("hobbit+hobbit-t1=0.25"), (std::vector<NamedValue>{{"hobbit-t1", "0.25"}})) << "its own wins";
  EXPECT_TRUE(CheckGivenOptions(*ParseContenders("edgemoe,hobbit"), *given).ok());
  EXPECT_THAT(MessageOf(CheckGivenOptions(*ParseContenders("auto,edgemoe"), *given)), HasSubstr("\"hobbit-t1\""));
}

TEST(ContendersTest, PlansOfAFolderGoToWhoTakesThem) {
  const TempFolder folder;
  for (const char* file : {"paths", "hobbit.json", "slots-25.json"}) Write(folder / file, "a plan");
  const auto given = ParseGivenOptions({"edgemoe:paths=mine"});
  const auto all = FindPlans(folder / "", {25, 50}, {});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->missing, testing::ElementsAre("widths.json", "fate.json", "slots-50.json"));
  const auto of = [&](const std::string& name, int share) {
    std::vector<std::string> names;
    for (const NamedValue& option : OptionsOf(ParseContenders(name)->front(), all->options, share)) {
      EXPECT_TRUE(std::filesystem::exists(option.value)) << option.value;
      names.push_back(option.name);
    }
    return names;
  };
  EXPECT_THAT(of("edgemoe", 25), testing::ElementsAre("paths"));
  EXPECT_THAT(of("eap", 25), testing::ElementsAre("paths"));
  EXPECT_THAT(of("hobbit", 50), testing::ElementsAre("hobbit-plan"));
  EXPECT_THAT(of("swapmoe", 25), testing::ElementsAre("slots"));
  EXPECT_THAT(of("swapmoe", 50), testing::IsEmpty());
  EXPECT_THAT(of("auto", 25), testing::IsEmpty());
  const auto beside = FindPlans(folder / "", {25}, *given);
  ASSERT_TRUE(beside.ok());
  EXPECT_TRUE(std::ranges::none_of(beside->options, [](const GivenOption& one) { return one.option.name == "paths"; }))
      << "what is given counts";
  EXPECT_THAT(MessageOf(FindPlans(folder / "none", {25}, {}).status()), HasSubstr("moed-plan all STORE TEXT --out"));
}

TEST(AblationsTest, EveryRowNamesTwoContendersThatDiffer) {
  const auto contenders = ParseContenders("ablations");
  ASSERT_TRUE(contenders.ok()) << contenders.status();
  std::set<std::string> names;
  for (const Contender& contender : *contenders) names.insert(contender.name());
  for (const AblationRow& row : Ablations()) {
    EXPECT_TRUE(names.contains(std::string(row.with))) << row.with << ": not how the contender calls itself";
    EXPECT_TRUE(names.contains(std::string(row.without))) << row.without;
    EXPECT_NE(row.with, row.without);
  }
}

TEST(CellsTest, NoCellTakesMoreThanAMinuteAContender) {
  for (const auto& cells : {AllCells(), QuickCells()}) {
    for (const Cell& cell : cells) {
      EXPECT_LE(cell.protocol.turns * cell.protocol.seconds, 60) << cell.name();
      EXPECT_LE(cell.protocol.prompt_tokens + cell.protocol.skipped_tokens + 1 + cell.protocol.counted_tokens, 256)
          << cell.name();
    }
  }
}

TEST(CellsTest, ChoiceOfCells) {
  const auto grid = ChooseCells({.shares = {10, 25}, .disks = {"native", "90"}, .seconds = 5, .turns = 2});
  ASSERT_TRUE(grid.ok()) << grid.status();
  ASSERT_EQ(grid->size(), 3u);
  EXPECT_EQ(grid->at(0).name(), "10 %, native");
  EXPECT_DOUBLE_EQ(grid->at(0).protocol.seconds, 5);
  EXPECT_EQ(grid->at(0).protocol.turns, 2);
  EXPECT_EQ(grid->at(2).name(), "25 %, 90 MB/s");
  EXPECT_DOUBLE_EQ(grid->at(2).protocol.seconds, 30) << "in proportion";
  EXPECT_EQ(grid->at(2).protocol.turns, 1) << "at most";
  EXPECT_EQ(ChooseCells({})->size(), AllCells().size());
  EXPECT_THAT(MessageOf(ChooseCells({.shares = {33}}).status()), HasSubstr("known are 10, 25, 50, 75, 100"));
  EXPECT_THAT(MessageOf(ChooseCells({.disks = {"tape"}}).status()), HasSubstr("known are native, 550, 90"));
}

TEST(PromptsTest, LearningAndAnsweringUseOtherHalves) {
  std::vector<PromptKind> kinds = {{"a", {1, 2, 3, 4, 5}}, {"b", {6, 7}}};
  const std::vector<PromptKind> learning = SplitForLearning(kinds);
  EXPECT_EQ(learning[0].ids, (std::vector<int>{1, 2}));
  EXPECT_EQ(kinds[0].ids, (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(learning[1].ids, (std::vector<int>{6}));
  EXPECT_EQ(kinds[1].ids, (std::vector<int>{7}));
}

TEST(PromptsTest, PiecesDifferAndAreWhole) {
  PromptKind kind{"text", {}};
  for (int id = 0; id < 10000; ++id) kind.ids.push_back(id);
  const std::vector<int> first = PromptOf(kind, 64, 0), second = PromptOf(kind, 64, 1);
  EXPECT_EQ(first.size(), 64u);
  EXPECT_EQ(first.back(), 63);
  EXPECT_NE(first, second);
  EXPECT_EQ(PromptOf({"short", {4, 5, 6}}, 64, 7), (std::vector<int>{4, 5, 6}));
}

TEST(EnergyTest, AddsPackagesOnlyAndKnowsThatCountersWrap) {
  const TempFolder folder;
  EXPECT_FALSE(EnergyMeter(folder / "nowhere").readable());
  const std::vector<std::pair<std::string, std::string>> zones = {
      {"intel-rapl:0", "1000000"}, {"intel-rapl:1", "9000000"}, {"intel-rapl:0:0", "5"}};
  for (const auto& [zone, energy] : zones) {
    Write(folder / (zone + "/max_energy_range_uj"), "10000000\n");
    Write(folder / (zone + "/energy_uj"), energy);
  }
  EnergyMeter meter(folder.path());
  ASSERT_TRUE(meter.readable());
  Write(folder / "intel-rapl:0/energy_uj", "3000000");
  Write(folder / "intel-rapl:1/energy_uj", "500000");
  Write(folder / "intel-rapl:0:0/energy_uj", "4000000");
  EXPECT_DOUBLE_EQ(meter.TakeJoules(), 2 + 1.5);
  EXPECT_DOUBLE_EQ(meter.TakeJoules(), 0);
}

const nlohmann::ordered_json kRun = {{"store", "a.moed"}, {"turns", 2}};

Record Speed(const std::string& contender, int turn, Figures figures, const std::string& disk = "native") {
  return {{"speed", 25, disk, contender, turn}, std::move(figures), ""};
}

TEST(JournalTest, GoesOnWhereItWas) {
  const TempFolder folder;
  const std::string path = folder / "j.jsonl";
  {
    auto journal = SystemsJournal::Open(path, kRun);
    ASSERT_TRUE(journal.ok()) << journal.status();
    ASSERT_TRUE(journal->Add(Speed("auto", 0, {{"decode_tokens_per_second", 2.5}})).ok());
    ASSERT_TRUE(journal->Add({{"speed", 25, "native", "edgemoe", 0}, {}, "needs \"widths\""}).ok());
  }
  std::ofstream(path, std::ios::app) << "{\"kind\":\"speed\",\"sha";  // killed while writing
  auto journal = SystemsJournal::Open(path, kRun);
  ASSERT_TRUE(journal.ok()) << journal.status();
  ASSERT_EQ(journal->records().size(), 2u);
  EXPECT_EQ(journal->Find({"speed", 25, "native", "auto", 0})->figures.at("decode_tokens_per_second"), 2.5);
  EXPECT_EQ(journal->Find({"speed", 25, "native", "edgemoe", 0})->not_run, "needs \"widths\"");
  EXPECT_EQ(journal->Find({"speed", 25, "native", "auto", 1}), nullptr);
  ASSERT_TRUE(journal->Add(Speed("auto", 1, {})).ok());
  EXPECT_EQ(SystemsJournal::Open(path, kRun)->records().size(), 3u) << "what was cut off is gone, what follows is whole";
}

TEST(JournalTest, RefusesAnotherRunAndWhatIsNoJournal) {
  const TempFolder folder;
  ASSERT_TRUE(SystemsJournal::Open(folder / "j.jsonl", kRun).ok());
  nlohmann::ordered_json other = kRun;
  other["turns"] = 3;
  EXPECT_THAT(MessageOf(SystemsJournal::Open(folder / "j.jsonl", other).status()),
              HasSubstr("belongs to another run: turns is 2 there and 3 here; delete it"));
  Write(folder / "text.jsonl", "Once upon a time\n");
  EXPECT_THAT(MessageOf(SystemsJournal::Open(folder / "text.jsonl", kRun).status()), HasSubstr("line 1"));
  EXPECT_FALSE(SystemsJournal::Open(folder / "no/such/folder.jsonl", kRun).ok());
}

TEST(QualityTest, DivergenceByHand) {
  const auto log = [](double p) { return static_cast<float>(std::log(p)); };
  const std::map<int, float> exact = {{1, log(0.5)}, {2, log(0.25)}, {3, log(0.125)}};
  EXPECT_NEAR(BucketedDivergence(exact, exact), 0, 1e-6);
  // Tokens 1 and 2 are shared; the rest is 0.25 against 0.5.
  const std::map<int, float> lossy = {{1, log(0.25)}, {2, log(0.25)}, {9, log(0.1)}};
  EXPECT_NEAR(BucketedDivergence(exact, lossy), 0.5 * std::log(2.0) + 0.25 * std::log(0.5), 1e-6);
  // Nothing is shared: one bucket that holds everything.
  EXPECT_NEAR(BucketedDivergence(exact, {{7, log(0.9)}}), 0, 1e-6);
}

TEST(QualityTest, ComparesTheWindowsThatBothHave) {
  const std::map<int, float> one = {{1, 0}};
  ScoredText exact{{{{-1, -2}, {one, one}, {1, 1}}, {{-9}, {one}, {1}}}, 0};
  const ScoredText lossy{{{{-2, -2}, {one, one}, {1, 4}}}, 0.125};
  const Figures figures = CompareQuality(exact, lossy);
  EXPECT_DOUBLE_EQ(figures.at("scored_tokens"), 2);
  EXPECT_DOUBLE_EQ(figures.at("perplexity"), std::exp(2.0));
  EXPECT_DOUBLE_EQ(figures.at("exact_perplexity"), std::exp(1.5));
  EXPECT_DOUBLE_EQ(figures.at("perplexity_ratio"), std::exp(0.5));
  EXPECT_DOUBLE_EQ(figures.at("top1_agreement"), 0.5);
  EXPECT_DOUBLE_EQ(figures.at("quality_gate_mass_lost"), 0.125);
  EXPECT_TRUE(CompareQuality(exact, {}).empty());
}

TEST(IdentityTest, TextsAndFilesAreToldApart) {
  const std::vector<PromptKind> texts = {{"a", {1, 2, 3}}, {"b", {4}}};
  EXPECT_EQ(HashOfTexts(texts), HashOfTexts({{"a", {1, 2, 3}}, {"b", {4}}}));
  EXPECT_NE(HashOfTexts(texts), HashOfTexts({{"a", {1, 2, 9}}, {"b", {4}}})) << "as many tokens, but others";
  EXPECT_NE(HashOfTexts(texts), HashOfTexts({{"a", {1, 2, 3, 4}}, {"b", {}}})) << "the same tokens, but elsewhere";
  EXPECT_NE(HashOfTexts(texts), HashOfTexts({{"a", {1, 2, 3}}, {"c", {4}}}));
  const TempFolder folder;
  Write(folder / "one", std::string(100'000, 'a'));
  Write(folder / "same", std::string(100'000, 'a'));
  Write(folder / "other", std::string(99'999, 'a') + "b");
  EXPECT_EQ(*HashOfFile(folder / "one"), *HashOfFile(folder / "same"));
  EXPECT_NE(*HashOfFile(folder / "one"), *HashOfFile(folder / "other"));
  EXPECT_TRUE(absl::IsNotFound(HashOfFile(folder / "none").status()));
}

class ReportTest : public testing::Test {
 protected:
  ReportTest() {
    bench_.budgets[25] = 100 << 20;
    for (const char* name : {"hobbit", "load-on-demand-lru", "edgemoe", "auto", "auto@bounded:0.1"}) {
      contenders_.push_back(ParseContenders(name)->front());
    }
    const auto add = [&](const std::string& name, int turn, double rate, double exact, double lost) {
      EXPECT_TRUE(
          journal_.Add(Speed(name, turn, {{"decode_tokens_per_second", rate}, {"exact", exact}, {"gate_mass_lost", lost}})).ok());
    };
    add("load-on-demand-lru", 0, 2, 1, 0);
    add("load-on-demand-lru", 1, 4, 1, 0);
    add("hobbit", 0, 3, 0, 0.2);
    add("hobbit", 1, 8, 0, 0.2);
    add("auto", 0, 3, 1, 0);
    add("auto", 1, 6, 1, 0);
    add("auto@bounded:0.1", 0, 6, 0, 0.1);
    add("auto@bounded:0.1", 1, 12, 0, 0.1);
    EXPECT_TRUE(journal_.Add({{"speed", 25, "native", "edgemoe", 0}, {}, "needs widths"}).ok());
    EXPECT_TRUE(journal_.Add({{"quality", 25, "native", "hobbit", 0}, {{"perplexity_ratio", 1.0625}, {"kl", 0.0625}}, ""}).ok());
  }

  const TempFolder folder_;
  SystemsBench bench_;
  const std::vector<Cell> cells_ = {{25, 0, "native", 0, {.turns = 2}}};
  std::vector<Contender> contenders_;
  SystemsJournal journal_ = *SystemsJournal::Open(folder_ / "j.jsonl", kRun);
  ReportParts parts_{bench_, cells_, contenders_, journal_, kRun};
};

TEST_F(ReportTest, RatiosAreOfOneTurn) {
  const auto ratio = RatioOf(journal_, cells_[0], "hobbit", "load-on-demand-lru");
  ASSERT_TRUE(ratio.has_value());
  EXPECT_DOUBLE_EQ(ratio->low, 1.5);
  EXPECT_DOUBLE_EQ(ratio->median, 1.75);
  EXPECT_DOUBLE_EQ(ratio->high, 2.0);
  EXPECT_FALSE(RatioOf(journal_, cells_[0], "hobbit", "edgemoe").has_value());
}

TEST_F(ReportTest, TargetsPickTheirRivals) {
  std::map<std::string, TargetResult> found;
  for (const TargetResult& target : Targets(parts_)) found[target.what + StrCat(" ", target.reach)] = target;
  ASSERT_TRUE(found.contains("hobbit / load-on-demand-lru 1.5"));
  EXPECT_TRUE(found.at("hobbit / load-on-demand-lru 1.5").met());
  const auto& exact = found.at("auto / the best exact rival (load-on-demand-lru) 1.2");
  EXPECT_DOUBLE_EQ(exact.ratio->median, 1.5);
  // Whoever is exact, whatever was replaced in him, but not auto's own parts.
  for (const char* name : {"hobbit@exact", "hobbit+predictor=none@exact", "auto+policy=lru"}) {
    contenders_.push_back(ParseContenders(name)->front());
    const double rate = name == std::string("auto+policy=lru") ? 8 : name == std::string("hobbit@exact") ? 4 : 5;
    for (int turn = 0; turn < 2; ++turn) {
      ASSERT_TRUE(journal_.Add(Speed(name, turn, {{"decode_tokens_per_second", rate}, {"exact", 1}})).ok());
    }
  }
  found.clear();
  for (const TargetResult& target : Targets(parts_)) found[target.what + StrCat(" ", target.reach)] = target;
  ASSERT_TRUE(found.contains("auto / the best exact rival (hobbit+predictor=none@exact) 1.2"));
  EXPECT_DOUBLE_EQ(found.at("auto / the best exact rival (hobbit+predictor=none@exact) 1.2").ratio->median, (.6 + 1.2) / 2);
  const auto& bounded = found.at("auto within hobbit's gate mass (auto@bounded:0.1) / hobbit 1.1");
  EXPECT_DOUBLE_EQ(bounded.ratio->median, (2 + 1.5) / 2);
}

TEST_F(ReportTest, AblationsAreRatiosOfOneTurn) {
  EXPECT_EQ(AblationTables(parts_), "") << "nobody has his counterpart";
  contenders_.push_back(ParseContenders("hobbit+fidelity-rule=exact")->front());
  ASSERT_TRUE(journal_.Add(Speed("hobbit+fidelity-rule=exact", 0, {{"decode_tokens_per_second", 2}, {"exact", 1}})).ok());
  ASSERT_TRUE(journal_.Add(Speed("hobbit+fidelity-rule=exact", 1, {{"decode_tokens_per_second", 4}, {"exact", 1}})).ok());
  EXPECT_THAT(AblationTables(parts_),
              HasSubstr("| hobbit | hobbit+fidelity-rule=exact | 5.5 | 3.0 | 1.75 (1.50 to 2.00) |  | 1.062 | "
                        "exact |"));
  EXPECT_EQ(AblationJson(parts_).at(0).at("median"), 1.75);
}

TEST_F(ReportTest, TablesNameEveryContender) {
  const std::string markdown = ReportMarkdown(parts_);
  EXPECT_THAT(markdown, HasSubstr("| hobbit | 5.50 (3.00 to 8.00) |"));
  EXPECT_THAT(markdown, HasSubstr("| 1.062 |"));
  EXPECT_THAT(markdown, HasSubstr("- edgemoe: not run: needs widths"));
  EXPECT_THAT(markdown, Not(HasSubstr("J a token"))) << "nobody has that figure";
  const auto json = ReportJson(parts_);
  EXPECT_EQ(json.at("cells").size(), contenders_.size());
  EXPECT_EQ(json.at("budgets")[0].at("process_limit_bytes"), (100u << 20) + kBesideBudgetBytes);
  EXPECT_EQ(json.at("cells")[2].at("not_run"), "needs widths");
}

TEST_F(ReportTest, WhatNobodyMeasuredIsNoFigure) {
  const auto json = ReportJson(parts_);
  for (const auto& cell : json.at("cells")) {
    const std::string name = cell.at("contender");
    const bool exact = name == "auto" || name == "load-on-demand-lru";
    EXPECT_EQ(cell.contains("quality"), exact || name == "hobbit") << name;
    if (exact) {
      EXPECT_EQ(cell.at("quality"), "exact") << name;
    }
    if (name == "hobbit") {
      EXPECT_EQ(cell.at("quality").at("perplexity_ratio"), 1.0625);
    }
  }
  const std::string markdown = ReportMarkdown(parts_);
  EXPECT_THAT(markdown, HasSubstr("| auto | 4.50 (3.00 to 6.00) | 0.0 % | exact | exact | exact |"));
  EXPECT_THAT(markdown, HasSubstr("| auto@bounded:0.1 | 9.00 (6.00 to 12.0) | 10 % |  |  |  |"));
}

}  // namespace
}  // namespace moed
