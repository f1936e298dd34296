// Files of the expert path, damaged: refused with their name, or what is read of them lies within its bounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "core/expert/fidelity/fate_plan.h"
#include "core/expert/fidelity/hobbit_plan.h"
#include "core/expert/fidelity/widths.h"
#include "core/expert/learning/activation_paths.h"
#include "core/expert/learning/learned_state.h"
#include "core/expert/swapmoe/slots.h"
#include "tests/base/damaged_bytes.h"
#include "tests/base/damaged_json.h"
#include "tests/expert/learned_parts.h"

namespace moed {
namespace damaged_files_test {

using testing::AllOf;
using testing::Each;
using testing::Ge;
using testing::HasSubstr;
using testing::Le;

constexpr uint64_t kHash = 0xab;
constexpr int kMoeLayers = 2, kOfALayer = 3, kPrecisions = 2;

std::string WritePaths(const std::string& path) {
  ActivationPaths paths(kMoeLayers, kOfALayer, 2, 0);
  const int32_t chosen[] = {0, 2};
  for (int i = 0; i < 5; ++i) paths.Add(1, {{0, 1}, {1, 2}}, chosen);
  EXPECT_TRUE(paths.Write(path, kHash).ok());
  return FileContents(path);
}

absl::Status ReadPaths(const std::string& path) {
  const auto paths = ActivationPaths::Read(path, kHash, kMoeLayers, kOfALayer);
  if (!paths.ok()) return paths.status();
  std::vector<float> probabilities(kOfALayer);
  const int32_t chosen[] = {1, 2};
  for (int position = 0; position < kMoeLayers; ++position) {
    for (const PathKey& key : {PathKey{{0, 1}, {1, 2}}, PathKey{{1}, {1, 2}}, PathKey{{}, {1}}, PathKey{}}) {
      (*paths)->Estimate(position, key, probabilities);
      EXPECT_THAT(probabilities, Each(AllOf(Ge(0.f), Le(1.f))));
      (*paths)->Add(position, key, chosen);
    }
  }
  return absl::OkStatus();
}

constexpr size_t kTableBytes = 4096;  // with room for weights of pairs

LearnedFile Learned(const std::string& path) { return {path, kHash, "parts"}; }

std::string WriteLearned(const std::string& path) {
  LearnedParts parts(kTableBytes);
  parts.Learn(60);
  EXPECT_TRUE(parts.Save(Learned(path)).ok());
  return FileContents(path);
}

absl::Status ReadLearned(const std::string& path) {
  LearnedParts parts(kTableBytes);
  const auto taken = parts.Take(Learned(path));
  if (!taken.ok()) return taken.status();
  parts.Learn(6);
  std::vector<float> popularity(kExperts);
  for (const LayerId layer : kLayers) {
    parts.policy->Popularity(layer, popularity);
    EXPECT_THAT(popularity, Each(AllOf(Ge(0.f), Le(1.f))));
    parts.policy->OnInsert({layer, 5}, 1);
  }
  EXPECT_TRUE(parts.policy->Victim({.current_layer = kFirst}, [](CachedKey) { return true; }).has_value());
  return absl::OkStatus();
}

constexpr char kWidths[] = R"({"model_hash":"00000000000000ab","precisions":[[0,1,0],[1,1,0]]})";
absl::Status ReadWidthsFile(const std::string& path) {
  const auto widths = ReadWidths(path, kHash, kMoeLayers, kOfALayer, kPrecisions);
  if (!widths.ok()) return widths.status();
  EXPECT_EQ(widths->size(), size_t{kMoeLayers});
  for (const std::vector<int>& layer : *widths) {
    EXPECT_EQ(layer.size(), size_t{kOfALayer});
    EXPECT_THAT(layer, Each(AllOf(Ge(0), Le(kPrecisions - 1))));
  }
  return absl::OkStatus();
}

constexpr char kSlots[] = R"({"model_hash":"00000000000000ab","slots":[1,3],"norms":[[1,2.5,0],[4,5,6]]})";
absl::Status ReadSlotsFile(const std::string& path) {
  const auto plan = ReadSlotsPlan(path, kHash, kMoeLayers, kOfALayer);
  if (!plan.ok()) return plan.status();
  EXPECT_EQ(plan->slots.size(), size_t{kMoeLayers});
  EXPECT_THAT(plan->slots, Each(AllOf(Ge(1), Le(kOfALayer))));
  EXPECT_EQ(plan->norms.size(), size_t{kMoeLayers * kOfALayer});
  for (const float norm : plan->norms) EXPECT_TRUE(norm >= 0 && std::isfinite(norm)) << norm;
  return absl::OkStatus();
}

constexpr char kFate[] = R"({"model_hash":"00000000000000ab","prefill_low":0.25,"shallow_layers":1})";
absl::Status ReadFateFile(const std::string& path) {
  const auto plan = ReadFatePlan(path, kHash, kMoeLayers);
  if (!plan.ok()) return plan.status();
  EXPECT_TRUE(plan->prefill_low >= 0 && plan->prefill_low <= 1) << plan->prefill_low;
  EXPECT_TRUE(plan->shallow_layers >= 0 && plan->shallow_layers <= kMoeLayers) << plan->shallow_layers;
  return absl::OkStatus();
}

constexpr char kHobbit[] =
    R"({"model_hash":"00000000000000ab","t1":0.5,"t2":0.8,"lru":0.5,"lfu":0.2,"lhu":0.2,"fld":0.1,"high_cache":0.9})";
absl::Status ReadHobbitFile(const std::string& path) {
  const auto plan = ReadHobbitPlan(path, kHash);
  if (!plan.ok()) return plan.status();
  EXPECT_TRUE(plan->thresholds.high >= 0 && plan->thresholds.high <= plan->thresholds.low && plan->thresholds.low <= 1);
  EXPECT_TRUE(plan->tuning.high_cache >= 0 && plan->tuning.high_cache <= 1);
  const HobbitWeights& weights = plan->tuning.weights;
  EXPECT_NEAR(weights.lru + weights.lfu + weights.lhu + weights.fld, 1, 1e-5);
  return absl::OkStatus();
}

struct Text {
  const char* name;
  const char* good;
  absl::Status (*read)(const std::string& path);  // expects what it read to be within its bounds
};
constexpr Text kTexts[] = {{"widths", kWidths, ReadWidthsFile},
                           {"slots", kSlots, ReadSlotsFile},
                           {"fate-plan", kFate, ReadFateFile},
                           {"hobbit-plan", kHobbit, ReadHobbitFile}};

// With a checksum of everything before it at their end.
struct Sealed {
  const char* name;
  std::string (*write)(const std::string& path);
  absl::Status (*read)(const std::string& path);
};
constexpr Sealed kSealed[] = {{"paths", WritePaths, ReadPaths}, {"learned", WriteLearned, ReadLearned}};

std::string Resealed(std::string contents) {
  if (contents.size() < sizeof(uint64_t)) return contents;
  const size_t end = contents.size() - sizeof(uint64_t);
  const uint64_t checksum = Checksum(std::string_view(contents).substr(0, end));
  std::memcpy(contents.data() + end, &checksum, sizeof(checksum));
  return contents;
}

class DamagedFiles : public testing::Test {
 protected:
  template <class Row>
  absl::Status Read(const Row& row, const std::string& contents) {
    std::ofstream(path_, std::ios::binary) << contents;
    return row.read(path_);
  }
  template <class Row>
  void ExpectRefused(const Row& row, const std::string& contents, size_t at) {
    const absl::Status status = Read(row, contents);
    ASSERT_FALSE(status.ok()) << row.name << " at " << at;
    EXPECT_THAT(MessageText(status), HasSubstr(path_)) << row.name << " at " << at;
  }
  template <class Row, class What>
  void ExpectRefusedOrSane(const Row& row, const std::string& contents, const What& what) {
    const absl::Status status = Read(row, contents);
    if (status.ok()) return;
    EXPECT_THAT(MessageText(status), HasSubstr(path_)) << row.name << ": " << what;
  }

  MemoryFolder folder_;
  const std::string path_ = folder_ / "file";
};

TEST_F(DamagedFiles, UndamagedTheyAreRead) {
  for (const Text& text : kTexts) EXPECT_TRUE(Read(text, text.good).ok()) << Read(text, text.good);
  for (const Sealed& file : kSealed) EXPECT_TRUE(Read(file, Resealed(file.write(path_))).ok()) << file.name;
}

TEST_F(DamagedFiles, NoByteOfASealedFileIsUnguarded) {
  for (const Sealed& file : kSealed) {
    const std::string good = file.write(path_);
    const auto refused = [&](const std::string& damaged, size_t at) { ExpectRefused(file, damaged, at); };
    const size_t step = 1 + good.size() / 2000;
    ForEachTruncation(good, {.end = 100}, refused);
    ForEachTruncation(good, {.begin = 100, .step = step}, refused);
    ForEachFlip(good, {.end = 100}, 8, refused);
    ForEachFlip(good, {.begin = 100, .step = step}, 1, refused);
    ExpectRefused(file, good + "x", good.size());
  }
}

TEST_F(DamagedFiles, DamageBehindARightChecksumDoesNoHarm) {
  for (const Sealed& file : kSealed) {
    const std::string good = file.write(path_);
    const auto read = [&](const std::string& damaged, size_t at) { ExpectRefusedOrSane(file, Resealed(damaged), at); };
    const size_t step = 1 + good.size() / 500;
    ForEachTruncation(good, {.step = step}, read);
    ForGarbled(good, {.end = 100}, 500, 11, read);
    ForGarbled(good, {}, 1000, 13, read);
    for (const uint32_t word : {0x7fc00000u, 0x7f800000u, 0xff7fffffu, 0x80000000u, 0x7fffffffu}) {
      const std::string_view bytes(reinterpret_cast<const char*>(&word), sizeof(word));
      for (const size_t alignment : {size_t{0}, size_t{1}, size_t{2}, size_t{3}}) {
        ForEachReplaced(good, {.begin = alignment, .end = good.size() - sizeof(uint64_t), .step = 4 * step}, bytes, read);
      }
    }
  }
}

// Not a number is what a learned one never is; once taken up it would stay for ever.
TEST_F(DamagedFiles, WhatCannotBeLearnedIsNotTakenUp) {
  const Sealed& learned = kSealed[1];
  const std::string good = learned.write(path_);
  const size_t first = 3 * sizeof(uint64_t) + Learned("").parts.size() + sizeof(uint64_t);  // number of the first array
  for (const float number : {NAN, INFINITY, -INFINITY, 1e30f}) {
    std::string damaged = good;
    std::memcpy(damaged.data() + first, &number, sizeof(number));
    const absl::Status status = Read(learned, Resealed(damaged));
    EXPECT_TRUE(absl::IsOutOfRange(status)) << number << ": " << status;
    EXPECT_THAT(MessageText(status), AllOf(HasSubstr(path_), HasSubstr("cannot have been learned"))) << number;
  }
}

TEST_F(DamagedFiles, TextsTruncatedFlippedAndGarbled) {
  for (const Text& text : kTexts) {
    const std::string good = text.good;
    ForEachTruncation(good, {}, [&](const std::string& damaged, size_t at) { ExpectRefused(text, damaged, at); });
    const auto read = [&](const std::string& damaged, size_t at) { ExpectRefusedOrSane(text, damaged, at); };
    ForEachFlip(good, {}, 8, read);
    ForGarbled(good, {}, 1000, 17, read);
  }
}

TEST_F(DamagedFiles, HostileValuesInTexts) {
  for (const Text& text : kTexts) {
    ForEachHostileValue(text.good,
                        [&](const std::string& damaged, const std::string& what) { ExpectRefusedOrSane(text, damaged, what); });
  }
}

// Numbers that would be others if they were cut to fit, or fractions cut off.
TEST_F(DamagedFiles, NumbersAreNotCutToFit) {
  const std::tuple<const Text&, std::string, std::string> cases[] = {
      {kTexts[0], "[[0,1,0]", "[[0,4294967297,0]"},
      {kTexts[0], "[[0,1,0]", "[[0,0.5,0]"},
      {kTexts[0], "[[0,1,0]", "[[0,true,0]"},
      {kTexts[1], "[1,3]", "[1,18446744073709551617]"},
      {kTexts[1], "[1,3]", "[1,2.5]"},
      {kTexts[2], "\"shallow_layers\":1", "\"shallow_layers\":4294967297"},
  };
  for (const auto& [text, good, hostile] : cases) {
    std::string damaged = text.good;
    damaged.replace(damaged.find(good), good.size(), hostile);
    EXPECT_TRUE(absl::IsInvalidArgument(Read(text, damaged))) << damaged;
  }
}

}  // namespace damaged_files_test
}  // namespace moed
