// Checkpoints whose experts differ in type by layer and part, packed as they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/model/family.h"
#include "core/store/expert_norms.h"
#include "core/store/store.h"
#include "nlohmann/json.hpp"
#include "tests/pack/command.h"
#include "tests/pack/tiny_checkpoint.h"
#include "tools/pack/checkpoint.h"
#include "tools/pack/plan.h"

namespace moed {
namespace mixed_formats_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string DownName(int layer, int expert) {
  return StrCat("model.layers.", layer, ".mlp.experts.", expert, ".down_proj.weight");
}

// bf16, but for `down` of layer 1, which is f32.
TinyCheckpoint MixedCheckpoint() {
  TinyCheckpoint tiny = MakeTinyCheckpoint("qwen3_moe");
  for (int expert = 0; expert < 5; ++expert) {
    TestTensor& down = tiny.tensors.at(DownName(1, expert));
    down = RandomTensor("F32", down.shape, 1000 + expert);
  }
  return tiny;
}

std::string PlanError(const TinyCheckpoint& tiny, const PackEncodings& encodings) {
  TemporaryFolder folder;
  tiny.Write(folder / "in");
  const Checkpoint checkpoint = Checkpoint::Open(folder / "in").value();
  return std::string(MakePlan(checkpoint, encodings).status().message());
}

TEST(MixedFormatsTest, WhatIsKeptIsWhatTheCheckpointHas) {
  TemporaryFolder folder;
  MixedCheckpoint().Write(folder / "in");
  const std::string out = folder / "out.store";
  const CommandResult packed = RunPack({folder / "in", out, "--expert-formats", "keep,q8", "--trunk-format", "keep"});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_EQ(RunPack({"verify", out}).exit_code, 0);
  const auto store = StoreReader::Open(out).value();
  const Checkpoint checkpoint = Checkpoint::Open(folder / "in").value();
  const StoreDescription& description = store->description();
  EXPECT_EQ(PrecisionName(description.precisions[0]), "f32+bf16");
  EXPECT_EQ(PrecisionName(description.precisions[1]), "q8");
  const TensorInfo* embed = store->FindTensor("embed").value();
  EXPECT_EQ(embed->format, FormatId::kBF16);
  const Family& family = checkpoint.family();
  const std::vector<float> norms = ReadExpertNorms(*store).value();
  const std::string file = FileContents(out);
  std::vector<float> row;
  for (size_t i = 0; i < description.moe_layers.size(); ++i) {
    for (int expert = 0; expert < description.experts_per_layer; ++expert) {
      const CachedKey key{description.moe_layers[i], expert};
      double squares = 0;
      for (const ExpertSegment& segment : store->expert_layout(key).segments) {
        const SourceTensor& source = *checkpoint.Find(family.expert_tensor(key.layer, expert, segment.part));
        EXPECT_EQ(segment.format, i == 1 && segment.part == ExpertPart::kDown ? FormatId::kF32 : FormatId::kBF16);
        const TestTensor expected = MixedCheckpoint().tensors.at(source.name);
        const auto* bytes = reinterpret_cast<const std::byte*>(file.data()) + store->RecordOffset(key) + segment.offset;
        row.resize(static_cast<size_t>(segment.cols));
        for (int r = 0; r < segment.rows; ++r) {
          DecodeRow(segment.format, bytes, segment.cols, r, row.data());
          const size_t number = expected.bytes.size() / (static_cast<size_t>(segment.rows) * segment.cols);
          for (int c = 0; c < segment.cols; ++c) {
            uint32_t bits = 0;
            std::memcpy(reinterpret_cast<char*>(&bits) + 4 - number,
                        expected.bytes.data() + (static_cast<size_t>(r) * segment.cols + c) * number, number);
            EXPECT_EQ(std::bit_cast<uint32_t>(row[c]), bits);
            squares += static_cast<double>(row[c]) * row[c];
          }
        }
      }
      EXPECT_EQ(norms[i * description.experts_per_layer + expert], static_cast<float>(std::sqrt(squares)));
    }
  }
  const auto json = nlohmann::json::parse(RunPack({"inspect", out, "--json"}).out);
  EXPECT_EQ(json["precisions"][0]["format"], "f32+bf16");
  EXPECT_EQ(json["precisions"][0]["layers"][1]["down"], "f32");
  EXPECT_EQ(json["precisions"][0]["layers"][1]["gate"], "bf16");
  EXPECT_EQ(json["precisions"][0]["total_bytes"], store->all_expert_bytes());
  EXPECT_FALSE(json["precisions"][1].contains("layers"));
}

TEST(MixedFormatsTest, ExpertsOfALayerHaveOneType) {
  TinyCheckpoint tiny = MixedCheckpoint();
  TestTensor& down = tiny.tensors.at(DownName(2, 3));
  down = RandomTensor("F16", down.shape, 1);
  EXPECT_THAT(PlanError(tiny, {.experts = {std::nullopt}}),
              AllOf(HasSubstr(DownName(2, 3)), HasSubstr("is F16"), HasSubstr(DownName(2, 0)), HasSubstr("BF16")));
  EXPECT_EQ(PlanError(tiny, {.experts = {Encoding{FormatId::kQ8}}}), "");
}

TEST(MixedFormatsTest, NoFormatTwice) {
  EXPECT_THAT(PlanError(MakeTinyCheckpoint("olmoe"), {.experts = {std::nullopt, Encoding{FormatId::kBF16}}}),
              HasSubstr("names bf16 twice"));
  EXPECT_THAT(RunPack({"a", "b", "--expert-formats", "keep,q8,keep"}).err, HasSubstr("names keep twice"));
  EXPECT_THAT(RunPack({"a", "b", "--expert-formats", "kep"}).err, HasSubstr("or keep"));
}

}  // namespace mixed_formats_test
}  // namespace moed
