// GGUF files of the tiny checkpoints, as llama.cpp's converter makes them, become the same models.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "nlohmann/json.hpp"
#include "tests/model/gguf_delta.h"
#include "tests/model/packed_model.h"
#include "tools/pack/gguf/architecture.h"

namespace moed {
namespace {

std::string DataPath(const std::string& checkpoint, std::string_view file) {
  return std::filesystem::path(DataFolder()) / checkpoint / file;
}

std::vector<std::string> Checkpoints() {
  std::vector<std::string> names = CheckpointNames();
  std::erase_if(names, [](const std::string& name) { return !std::filesystem::exists(DataPath(name, "model.gguf.delta")); });
  return names;
}

const TemporaryFolder& Folder() {
  static TemporaryFolder folder;
  return folder;
}

void Write(const std::string& path, std::string_view contents) { std::ofstream(path, std::ios::binary) << contents; }

std::string GgufOf(const std::string& checkpoint) {
  const std::string path = Folder() / (checkpoint + ".gguf");
  if (std::filesystem::exists(path)) return path;
  const std::string delta = ReadText(DataPath(checkpoint, "model.gguf.delta"));
  Write(path, ApplyGgufDelta(delta, ReadText(DataPath(checkpoint, "model.safetensors"))));
  return path;
}

// What GGUF files have no key for, as the released models have it.
const std::map<std::string, nlohmann::json> kWithoutKey = {{"phimoe", {{"router_jitter_noise", 0.01}}}};

std::string FolderOf(const std::string& checkpoint) {
  const auto released = kWithoutKey.find(checkpoint);
  if (released == kWithoutKey.end()) return checkpoint;
  const std::string folder = Folder() / checkpoint;
  if (std::filesystem::exists(folder)) return folder;
  std::filesystem::copy(DataPath(checkpoint, ""), folder);
  nlohmann::json config = nlohmann::json::parse(ReadText(DataPath(checkpoint, "config.json")));
  config.update(released->second);
  Write(folder + "/config.json", config.dump());
  return folder;
}

// The numbers that GGUF files have as float32. A file of an architecture that runs several families has one's name for all.
std::string AsInGguf(const std::string& spec_json) {
  ModelSpec spec = *SpecFromJson(spec_json);
  if (spec.family == "glm4_moe_lite") spec.family = "deepseek_v3";
  for (double* number :
       {&spec.rope_theta, &spec.attention_scale, &spec.embedding_scale, &spec.residual_scale, &spec.router_scale}) {
    *number = static_cast<float>(*number);
  }
  return SpecToJson(spec);
}

class GgufModelTest : public testing::TestWithParam<std::string> {
 protected:
  const StoreReader& folder_ = PackedStore(FolderOf(GetParam()), FormatId::kBF16);
  const StoreReader& gguf_ = PackedStore(GgufOf(GetParam()), FormatId::kBF16);
};

TEST_P(GgufModelTest, StoresHoldTheSame) {
  const StoreDescription &a = folder_.description(), &b = gguf_.description();
  EXPECT_EQ(AsInGguf(a.model_spec), AsInGguf(b.model_spec));
  EXPECT_EQ(a.tokenizer, b.tokenizer);
  ASSERT_EQ(a.trunk.size(), b.trunk.size());
  for (size_t i = 0; i < a.trunk.size(); ++i) EXPECT_EQ(a.trunk[i].name, b.trunk[i].name);
}

TEST_P(GgufModelTest, LogitsAreTheSameBits) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < 40; ++i) tokens.emplace_back((i * 37 + 11) % 259);
  std::vector<Logits> logits;
  for (const StoreReader* store : {&folder_, &gguf_}) {
    PackedModel model(*store);
    MemoryProvider provider(*store);
    TestSequence sequence;
    logits.push_back(model.Feed(provider, sequence, tokens, tokens.size()));
  }
  EXPECT_EQ(logits[0].size(), tokens.size());
  EXPECT_TRUE(SameBits(logits[0], logits[1]));
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, GgufModelTest, testing::ValuesIn(Checkpoints()),
                         [](const auto& info) { return info.param; });

TEST(GgufArchitecturesTest, EveryOneHasAFileOfTheConverter) {
  std::set<std::string_view> with_file;
  for (const std::string& checkpoint : Checkpoints()) {
    const auto model = OpenGguf(GgufOf(checkpoint));
    ASSERT_TRUE(model.ok()) << model.status();
    const auto architecture = ArchitectureOf(model->metadata);
    ASSERT_TRUE(architecture.ok()) << architecture.status();
    with_file.insert((*architecture)->name);
  }
  for (const GgufArchitecture& architecture : GgufArchitectures()) EXPECT_TRUE(with_file.contains(architecture.name));
}

}  // namespace
}  // namespace moed
