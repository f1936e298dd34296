// GGUFs that are damaged, or that nobody understands: refused with the name of what is wrong.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>

#include "tests/base/damaged_bytes.h"
#include "tests/pack/command.h"
#include "tests/pack/tiny_gguf.h"

namespace moed {
namespace gguf_refusal_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tiny_gguf::kExperts;
using tiny_gguf::kFfn;
using tiny_gguf::kHidden;
using tiny_gguf::Named;
using tiny_gguf::Opened;
using tiny_gguf::Tensor;
using tiny_gguf::Tiny;

TEST(GgufRefusalTest, SaysWhatItDoesNotUnderstand) {
  const auto key = [](std::string name) { return "qwen3moe." + name; };
  const struct {
    std::function<void(TestGguf&)> damage;
    std::vector<std::string> expected;
  } cases[] = {
      {[](auto& f) { f.Remove("general.architecture"); }, {"key general.architecture is missing"}},
      {[](auto& f) {
         f.Remove("general.architecture");
         f.String("general.architecture", "mamba9");
       },
       {"unknown general.architecture \"mamba9\"; known: llama, qwen2moe"}},
      {[&](auto& f) { f.Remove(key("block_count")); }, {"key qwen3moe.block_count is missing"}},
      {[&](auto& f) {
         f.Remove(key("expert_count"));
         f.U32(key("expert_count"), 0);
       },
       {"qwen3moe.expert_count is 0, allowed: a whole number from 1"}},
      {[&](auto& f) { f.String(key("rope.scaling.type"), "linear"); },
       {"qwen3moe.rope.scaling.type is \"linear\", which is not supported; allowed: none, yarn"}},
      {[&](auto& f) { f.String(key("rope.scaling.type"), "yarn"); }, {"qwen3moe.rope.scaling.factor is missing"}},
      {[&](auto& f) { f.F32(key("rope.scaling.factor"), 4); }, {"qwen3moe.rope.scaling.factor is 4"}},
      {[&](auto& f) { f.U32(key("attention.sliding_window"), 4096); }, {"qwen3moe.attention.sliding_window is 4096"}},
      {[&](auto& f) { f.U32(key("expert_gating_func"), 2); }, {"qwen3moe.expert_gating_func is 2"}},
      {[&](auto& f) { f.U32(key("expert_group_count"), 4); },
       {"unknown key qwen3moe.expert_group_count (4)", "keys that are understood"}},
      {[&](auto& f) {
         f.Remove(key("context_length"));
         f.I32s(key("context_length"), {64, 32});
       },
       {"qwen3moe.context_length is an array"}},
      {[](auto& f) {
         f.Remove("tokenizer.ggml.eos_token_id");
         f.U32("tokenizer.ggml.eos_token_id", 6);
       },
       {"tokenizer.ggml.eos_token_id is 6"}},
      {[](auto& f) { std::erase_if(f.tensors, [](auto& t) { return t.name == "token_embd.weight"; }); },
       {"\"token_embd.weight\""}},
      {[](auto& f) { std::erase_if(f.tensors, [](auto& t) { return t.name == "blk.0.attn_k_norm.weight"; }); },
       {"tiny.gguf", "\"blk.0.attn_k_norm.weight\" of shape (4) is missing"}},
      {[](auto& f) {
         Named(f, "blk.0.attn_q.weight") = Tensor("blk.0.attn_q.weight", {16, kHidden});
       },
       {"\"blk.0.attn_q.weight\" has shape (32, 16), expected (16, 32)"}},
      {[](auto& f) {
         Named(f, "blk.0.ffn_up_exps.weight") = Tensor("blk.0.ffn_up_exps.weight", {kHidden, kFfn, kExperts - 1});
       },
       {"\"blk.0.ffn_up_exps.weight[2]\" of shape (64, 32) is missing"}},
      {[](auto& f) { f.tensors.push_back(Tensor("rope_freqs.weight", {2})); },
       {"tiny.gguf: unknown tensor \"rope_freqs.weight\" of shape (2); a qwen3_moe model with this metadata has none"}},
  };
  for (const auto& [damage, expected] : cases) {
    TestGguf file = Tiny();
    damage(file);
    const Opened opened(file);
    EXPECT_FALSE(opened.plan.ok());
    for (const std::string& text : expected) EXPECT_THAT(opened.error(), HasSubstr(text));
  }
}

// Every way through the readers ends in a plan or in an error that names the file.
TEST(GgufRefusalTest, DamagedFilesArePlannedOrRefused) {
  int planned = 0;
  ForGarbled(Tiny().Bytes(), {}, 1500, 3, [&](const std::string& damaged, size_t at) {
    const Opened opened(damaged);
    planned += opened.plan.ok();
    if (opened.plan.ok()) return;
    EXPECT_THAT(opened.error(), HasSubstr("tiny.gguf")) << at;
  });
  EXPECT_GT(planned, 0);
  EXPECT_LT(planned, 1500);
}

// No store is left behind, not even an unfinished one.
TEST(GgufRefusalTest, NumbersThatAreNoneAreNamedByTensor) {
  for (const std::string name : {"blk.0.ffn_down_exps.weight", "blk.0.attn_norm.weight", "blk.0.ffn_gate_inp.weight"}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      TestGguf file = Tiny();
      Named(file, name).data.replace(4, 4, Little(bad));  // the second number
      TemporaryFolder folder;
      WriteContents(folder / "tiny.gguf", file.Bytes());
      const CommandResult packed = RunPack({folder / "tiny.gguf", folder / "out", "--expert-formats", "f32"});
      EXPECT_EQ(packed.exit_code, 1);
      EXPECT_THAT(packed.err, AllOf(HasSubstr("tiny.gguf: tensor \"" + name), HasSubstr(std::isnan(bad) ? "nan" : "inf")));
      EXPECT_FALSE(std::filesystem::exists(folder / "out"));
      EXPECT_FALSE(std::filesystem::exists(folder / "out.partial"));
    }
  }
}

TEST(GgufRefusalTest, ServingAGgufSaysHowToPackIt) {
  TemporaryFolder folder;
  WriteContents(folder / "tiny.gguf", Tiny().Bytes());
  const CommandResult inspected = RunPack({"inspect", folder / "tiny.gguf"});
  EXPECT_EQ(inspected.exit_code, 1);
  EXPECT_THAT(inspected.err,
              HasSubstr("is a GGUF file, not a store; this makes one of it: moed-pack " + (folder / "tiny.gguf") + " OUT"));
  EXPECT_THAT(RunPack({"inspect", folder / "."}).err,
              HasSubstr("is a folder, not a store; this makes one of a Hugging Face folder"));
}

}  // namespace gguf_refusal_test
}  // namespace moed
