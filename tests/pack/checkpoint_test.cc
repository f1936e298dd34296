#include "tools/pack/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/base/status.h"
#include "tests/base/damaged_json.h"
#include "tests/pack/command.h"
#include "tests/pack/tiny_checkpoint.h"

namespace moed {
namespace checkpoint_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CheckpointTest, ShardsAndOneFileHoldTheSameTensors) {
  TemporaryFolder folder;
  const TinyCheckpoint tiny = MakeTinyCheckpoint("mixtral");
  tiny.Write(folder / "single");
  tiny.WriteSharded(folder / "sharded", 3);
  for (const std::string name : {"single", "sharded"}) {
    auto checkpoint = Checkpoint::Open(folder / name);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_EQ(checkpoint->tensor_count(), tiny.tensors.size());
    EXPECT_EQ(checkpoint->family().model_type, "mixtral");
    EXPECT_EQ(checkpoint->spec().hidden, tiny.config["hidden_size"]);
    for (const auto& [tensor, expected] : tiny.tensors) {
      const SourceTensor* found = checkpoint->Find(tensor);
      ASSERT_NE(found, nullptr) << tensor;
      std::string bytes(found->bytes, '\0');
      ASSERT_TRUE(found->file->ReadAt(found->offset, std::as_writable_bytes(std::span(bytes))).ok());
      EXPECT_EQ(bytes, expected.bytes) << tensor;
    }
    EXPECT_EQ(checkpoint->Find("no such tensor"), nullptr);
  }
}

struct BrokenCheckpoint {
  std::string name;
  std::function<void(const std::string& folder)> damage;
  std::vector<std::string> expected;
};

// Damages a checkpoint of 3 shards.
TEST(CheckpointTest, SaysWhatIsMissingOrContradictory) {
  using nlohmann::json;
  const std::string index_name = "/model.safetensors.index.json";
  const auto edit_index = [&](const std::function<void(json&)>& change) {
    return [=](const std::string& folder) {
      json index = json::parse(FileContents(folder + index_name));
      change(index);
      WriteContents(folder + index_name, index.dump());
    };
  };
  const BrokenCheckpoint cases[] = {
      {"no config", [](auto& f) { std::filesystem::remove(f + "/config.json"); }, {"config.json"}},
      {"no tokenizer", [](auto& f) { std::filesystem::remove(f + "/tokenizer.json"); }, {"tokenizer.json"}},
      {"missing shard",
       [](auto& f) { std::filesystem::remove(f + "/shard-1.safetensors"); },
       {"shard-1.safetensors is missing", index_name}},
      {"no weights",
       [&](auto& f) { std::filesystem::remove(f + index_name); },
       {"neither model.safetensors nor model.safetensors.index.json"}},
      {"both", [](auto& f) { WriteContents(f + "/model.safetensors", Safetensors({})); }, {"both model.safetensors and"}},
      {"truncated shard",
       [](auto& f) { std::filesystem::resize_file(f + "/shard-2.safetensors", 500); },
       {"shard-2.safetensors", "500 bytes"}},
      {"index is no JSON", [&](auto& f) { WriteContents(f + index_name, "{"); }, {index_name, "not valid JSON"}},
      {"no weight map", [&](auto& f) { WriteContents(f + index_name, "{}"); }, {"weight_map"}},
      {"path",
       edit_index([](json& i) { i["weight_map"]["model.norm.weight"] = "../x"; }),
       {"model.norm.weight", "\"../x\"", "without folder"}},
      {"deep",
       [&](auto& f) {
         WriteContents(f + index_name, StrCat(R"({"weight_map":{"model.norm.weight":)", HostileValues().back(), "}}"));
       },
       {index_name, "nested more than 64 deep"}},
      {"not a string", edit_index([](json& i) { i["weight_map"]["model.norm.weight"] = 3; }), {"model.norm.weight", "lie in 3"}},
      {"named but absent",
       edit_index([](json& i) { i["weight_map"]["ghost"] = "shard-0.safetensors"; }),
       {"shard-0.safetensors has no tensor \"ghost\""}},
      {"present but unnamed",
       edit_index([](json& i) { i["weight_map"].erase("model.norm.weight"); }),
       {"\"model.norm.weight\"", "does not name"}},
      {"in two shards",
       [](auto& f) {
         WriteContents(f + "/shard-1.safetensors", Safetensors({{"twice", RandomTensor("F32", {1}, 1)}}));
         WriteContents(f + "/shard-2.safetensors", Safetensors({{"twice", RandomTensor("F32", {1}, 1)}}));
       },
       {"\"twice\"", "shard-1.safetensors", "shard-2.safetensors"}},
  };
  const TinyCheckpoint tiny = MakeTinyCheckpoint("mixtral");
  for (const BrokenCheckpoint& broken : cases) {
    TemporaryFolder folder;
    tiny.WriteSharded(folder / "in", 3);
    broken.damage(folder / "in");
    const absl::Status status = Checkpoint::Open(folder / "in").status();
    EXPECT_FALSE(status.ok()) << broken.name;
    for (const std::string& expected : broken.expected)
      EXPECT_THAT(std::string(status.message()), HasSubstr(expected)) << broken.name;
  }
  EXPECT_THAT(std::string(Checkpoint::Open("/no/such/folder").status().message()), HasSubstr("/no/such/folder is not a folder"));
}

TEST(CheckpointTest, FilesThatAreNestedTooDeepAreNamed) {
  const std::string deep = HostileValues().back();
  const std::pair<std::string, std::string> cases[] = {
      {"config.json", R"("quantization_config": )" + deep},
      {"config.json", R"("quantization_config": {"quant_method": "fp8", "x": )" + deep + "}"},
      {"config.json", R"("rope_scaling": )" + deep},
      {"generation_config.json", R"("temperature": )" + deep},
      {"generation_config.json", R"("eos_token_id": )" + deep},
      {"tokenizer_config.json", R"("chat_template": )" + deep},
      {"tokenizer_config.json", R"("bos_token": {"content": )" + deep + "}"},
      {"tokenizer.json", R"("normalizer": )" + deep},
      {"tokenizer.json", R"("decoder": {"type": )" + deep + "}"},
  };
  const TinyCheckpoint tiny = MakeTinyCheckpoint("mixtral");
  for (const auto& [name, member] : cases) {
    TemporaryFolder folder;
    tiny.Write(folder / "in");
    std::string text = "{}";
    if (name == "config.json") text = tiny.config.dump();
    if (name == "tokenizer.json") text = tiny.tokenizer;
    text.resize(text.find_last_of('}'));
    WriteContents(folder / ("in/" + name), StrCat(text, text.size() > 1 ? "," : "", member, "}"));
    const CommandResult result = RunPack({folder / "in", folder / "out"});
    EXPECT_EQ(result.exit_code, 1) << name << ": " << member.substr(0, 40);
    EXPECT_THAT(result.err, AllOf(HasSubstr(name), HasSubstr("nested more than 64 deep")));
  }
}

TEST(CheckpointTest, FingerprintFollowsTheFiles) {
  TemporaryFolder folder;
  const TinyCheckpoint tiny = MakeTinyCheckpoint("mixtral");
  tiny.Write(folder / "in");
  const std::string before = Checkpoint::Open(folder / "in")->fingerprint();
  EXPECT_EQ(Checkpoint::Open(folder / "in")->fingerprint(), before);
  const std::filesystem::path weights = folder / "in/model.safetensors";
  const auto written = std::filesystem::last_write_time(weights);
  std::filesystem::last_write_time(weights, written + std::chrono::seconds(3));
  EXPECT_NE(Checkpoint::Open(folder / "in")->fingerprint(), before);
  std::fstream(weights, std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end).put('\x55');
  std::filesystem::last_write_time(weights, written);
  EXPECT_NE(Checkpoint::Open(folder / "in")->fingerprint(), before) << "another model, as old and as large";
}

}  // namespace checkpoint_test
}  // namespace moed
