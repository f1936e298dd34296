// Slots: equal ones, files by friend and foe, the budget.
#include "core/expert/swapmoe/slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_format.h"
#include "core/expert/presets/preset.h"
#include "core/expert/swapmoe/options.h"
#include "tests/expert/provider_rig.h"

namespace moed {
namespace slots_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Slots, EqualOnesUseWhatTheSpareOneLeaves) {
  EXPECT_THAT(*EqualSlots(3, 8, 12), ElementsAre(4, 4, 3));
  EXPECT_THAT(*EqualSlots(3, 8, 4), ElementsAre(1, 1, 1));
  EXPECT_THAT(*EqualSlots(3, 8, 1000), ElementsAre(8, 8, 8));
  const absl::Status status = EqualSlots(3, 8, 3).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(MessageText(status), HasSubstr("one slot for each of 3 layers and a spare one need 4"));
}

TEST(Slots, APlanBeyondTheCacheSaysWhatIsAllowed) {
  EXPECT_TRUE(CheckSlotsFit({3, 4, 4}, 12, 1024).ok());
  const absl::Status status = CheckSlotsFit({3, 4, 5}, 12, 1024);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(MessageText(status), AllOf(HasSubstr("12 slots and a spare one is 13.0 KiB"), HasSubstr("11 slots are allowed"),
                                         HasSubstr("--budget 12288")));
  EXPECT_THAT(MessageText(CheckSlotsFit({1}, 0, 1024)), HasSubstr("so 0 slots are allowed"));
}

class SlotsFileTest : public testing::Test {
 protected:
  absl::StatusOr<SlotsPlan> Read(const std::string& text) {
    std::ofstream(path_) << text;
    return ReadSlotsPlan(path_, 0xab, 2, 3);
  }
  MemoryFolder folder_;
  const std::string path_ = folder_ / "slots.json";
};

TEST_F(SlotsFileTest, ReadsSlotsAndNorms) {
  const auto plan = Read(R"({"model_hash":"00000000000000ab","slots":[1,3],"norms":[[1,2.5,0],[4,5,6]],"report":{}})");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->slots, ElementsAre(1, 3));
  EXPECT_THAT(plan->norms, ElementsAre(1, 2.5f, 0, 4, 5, 6));
}

TEST_F(SlotsFileTest, RefusesWithWhatIsWrong) {
  const std::string head = R"({"model_hash":"00000000000000ab",)";
  const std::string norms = R"("norms":[[1,2,3],[4,5,6]]})";
  const struct {
    std::string text;
    const char* expected;
  } cases[] = {
      {"", "model_hash"},
      {"[]", "model_hash"},
      {R"({"model_hash":"00000000000000ab","slots":[1,1]})", "norms"},
      {R"({"model_hash":"0000000000000001","slots":[1,1],"norms":[[1,2,3],[4,5,6]]})", "made for the model 0000000000000001"},
      {head + R"("slots":[1],)" + norms, "slots of 1 and norms of 2 layers, the store has 2"},
      {head + R"("slots":[0,1],)" + norms, "slots[0] is 0, allowed are 1 to 3"},
      {head + R"("slots":[1,4],)" + norms, "slots[1] is 4, allowed are 1 to 3"},
      {head + R"("slots":[1,-9223372036854775808],)" + norms, "allowed are 1 to 3"},
      {head + R"("slots":[1,1.5],)" + norms, "1.5 is no whole number"},
      {head + R"("slots":["1",1],)" + norms, "no whole number"},
      {head + R"("slots":{"a":1},"norms":3})", "not {"},
      {head + R"("slots":[1,1],"norms":[[1,2,3],[4,5]]})", "norms[1] has 2 experts, the store 3"},
      {head + R"("slots":[1,1],"norms":[[1,2,-3],[4,5,6]]})", "norms[0][2] is -3"},
      {head + R"("slots":[1,1],"norms":[[1,2,1e300],[4,5,6]]})", "norms[0][2]"},
  };
  for (const auto& [text, expected] : cases) {
    const absl::Status status = Read(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(MessageText(status), AllOf(HasSubstr(path_), HasSubstr(expected)));
  }
  EXPECT_THAT(MessageText(ReadSlotsPlan(folder_ / "none", 0xab, 2, 3).status()), HasSubstr("cannot read"));
}

// Through the preset, as the daemon makes it once the cache's size is known.
TEST_F(SlotsFileTest, ThePresetHoldsTheBudget) {
  const StoreReader& store = ExpertStore::Get().reader();
  const auto make = [&](const std::string& preset, const std::string& options, int records) {
    const auto setup = ChoosePreset({.preset = preset, .options = PartOptions::Parse(options).value()}, store);
    if (!setup.ok()) return setup.status();
    return MakePresetParts(*setup, StoreParts(records)).status();
  };
  std::ofstream(path_) << absl::StrFormat(R"({"model_hash":"%016x","slots":[4,4,5],"norms":[[1,1,1,1,1,1,1,1],)",
                                          store.model_hash())
                       << "[1,1,1,1,1,1,1,1],[1,1,1,1,1,1,1,1]]}";
  EXPECT_TRUE(make("swapmoe", "slots=" + path_, 14).ok());
  EXPECT_THAT(MessageText(make("swapmoe", "slots=" + path_, 13)), HasSubstr("12 slots are allowed"));
  EXPECT_TRUE(make("swapmoe-equal", "slots=" + path_, 13).ok());
  EXPECT_TRUE(make("swapmoe", "", 4).ok());
  EXPECT_THAT(MessageText(make("swapmoe", "", 3)), HasSubstr("need 4"));
  EXPECT_TRUE(make("swapmoe-pruning", "", 12).ok());
  EXPECT_TRUE(make("swapmoe-pruning", "slots=" + path_, 12).ok());
  EXPECT_THAT(MessageText(make("swapmoe-pruning", "swap-window=3", 12)), HasSubstr("known here: slots"));
  EXPECT_THAT(MessageText(make("swapmoe", "swap-window=0", 12)), HasSubstr("swap-window"));
  EXPECT_THAT(MessageText(make("swapmoe", "swap-growth=0.5", 12)), HasSubstr("swap-growth"));
}

// Stores of earlier versions.
TEST_F(SlotsFileTest, AStoreWithoutNormsIsRefusedWithThePackThatWritesThem) {
  StoreDescription without = ExpertStore::Get().description();
  without.trunk.pop_back();
  LayOutTrunk(without);
  const std::string path = folder_ / "old.moed";
  auto writer = StoreWriter::Open(path, without, {});
  ASSERT_TRUE(writer.ok()) << writer.status();
  WritePieces(**writer, without);
  ASSERT_TRUE((*writer)->Finish().ok());
  const auto store = StoreReader::Open(path);
  ASSERT_TRUE(store.ok()) << store.status();
  int refused = 0;
  for (const PresetRow& row : Presets()) {
    if (row.mask != "swapmoe") continue;
    ++refused;
    const absl::Status refusal = ChoosePreset({.preset = std::string(row.name)}, **store).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(refusal)) << row.name;
    EXPECT_THAT(MessageText(refusal),
                AllOf(HasSubstr(path), HasSubstr("--expert-formats q8,q4\""), HasSubstr("moed-plan slots")));
  }
  EXPECT_EQ(refused, 4);
  std::ofstream(path_) << absl::StrFormat(R"({"model_hash":"%016x","slots":[4,4,5],"norms":[[1,1,1,1,1,1,1,1],)",
                                          (*store)->model_hash())
                       << "[1,1,1,1,1,1,1,1],[1,1,1,1,1,1,1,1]]}";
  EXPECT_TRUE(ChoosePreset({.preset = "swapmoe", .options = PartOptions::Parse("slots=" + path_).value()}, **store).ok());
}

TEST(ExpertNorms, AreThoseOfTheStore) {
  const auto norms = ReadExpertNorms(ExpertStore::Get().reader());
  ASSERT_TRUE(norms.ok()) << norms.status();
  ASSERT_EQ(norms->size(), 24u);
  EXPECT_EQ(norms->back(), 24);
  const auto setup = ChoosePreset({.preset = "swapmoe"}, ExpertStore::Get().reader());
  ASSERT_TRUE(setup.ok()) << setup.status();
  EXPECT_EQ(SwapMoeNorms(ExpertStore::Get().reader(), setup->options).value(), *norms);
}

}  // namespace slots_test
}  // namespace moed
