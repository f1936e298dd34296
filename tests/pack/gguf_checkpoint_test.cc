// What becomes of a GGUF's metadata and tensors. Whole models: tests/model/gguf_test.cc.
#include <gmock/gmock.h>

#include <random>
#include <set>

#include "core/base/status.h"
#include "core/quant/half.h"
#include "core/store/store.h"
#include "tests/pack/command.h"
#include "tests/pack/tiny_gguf.h"
#include "tools/pack/gguf/architecture.h"

namespace moed {
namespace gguf_checkpoint_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tiny_gguf::kExperts;
using tiny_gguf::kFfn;
using tiny_gguf::kHeadDim;
using tiny_gguf::kHidden;
using tiny_gguf::kVocabulary;
using tiny_gguf::Named;
using tiny_gguf::Opened;
using tiny_gguf::Tensor;
using tiny_gguf::Tiny;

TEST(GgufCheckpointTest, MetadataBecomeASpec) {
  const Opened opened(Tiny());
  ASSERT_TRUE(opened.plan.ok()) << opened.error();
  const ModelSpec& spec = opened.plan->spec;
  EXPECT_EQ(spec.family, "qwen3_moe");
  EXPECT_EQ(spec.vocabulary, static_cast<int>(kVocabulary));
  EXPECT_EQ(spec.head_dim, static_cast<int>(kHeadDim));
  EXPECT_TRUE(spec.tied_embeddings) << "there is no output.weight";
  EXPECT_TRUE(spec.norm_topk_prob);
  EXPECT_EQ(spec.eos, (std::vector<TokenId>{TokenId(0), TokenId(4)})) << "<|im_end|> ends a turn too";
  EXPECT_EQ(opened.checkpoint->Find("blk.0.ffn_up_exps.weight[2]")->shape, (std::vector<uint64_t>{kFfn, kHidden}));
}

TEST(GgufCheckpointTest, MessagesOfSolarOpenDoNotEndItsTurn) {
  TestGguf file = Tiny();
  file.Remove("tokenizer.ggml.tokens");
  file.Strings("tokenizer.ggml.tokens", {"<|flush|>", "a", "b", "ab", "<|end|>", "<|calls|>"});
  const Opened opened(file);
  ASSERT_TRUE(opened.plan.ok()) << opened.error();
  EXPECT_EQ(opened.plan->spec.eos, (std::vector<TokenId>{TokenId(0), TokenId(5)}));
}

TEST(GgufCheckpointTest, CallsOfGemmaEndItsTurn) {
  TestGguf file = Tiny();
  file.Remove("tokenizer.ggml.tokens");
  file.Strings("tokenizer.ggml.tokens", {"<turn|>", "a", "b", "ab", "<|tool_response>", "<eos>"});
  const Opened opened(file);
  ASSERT_TRUE(opened.plan.ok()) << opened.error();
  EXPECT_EQ(opened.plan->spec.eos, (std::vector<TokenId>{TokenId(0), TokenId(4), TokenId(5)}));
}

// As llama.cpp's converter writes Mixtral's architecture; Llama 3.1's frequencies are a tensor there.
TEST(GgufCheckpointTest, FrequenciesOfLlamaMayBeDivided) {
  TestGguf file = Tiny();
  file.Remove("general.architecture");
  for (auto& [key, value] : file.keys) {
    if (key.starts_with("qwen3moe.")) key.replace(0, key.find('.'), "llama");
  }
  file.String("general.architecture", "llama").U32("llama.feed_forward_length", kFfn);
  std::erase_if(file.tensors, [](const auto& tensor) {
    return tensor.name.find("attn_q_norm") != std::string::npos || tensor.name.find("attn_k_norm") != std::string::npos;
  });
  const Opened plain(file);
  ASSERT_TRUE(plain.plan.ok()) << plain.error();
  EXPECT_FALSE(plain.plan->spec.divided.has_value());
  file.tensors.push_back({"rope_freqs.weight", {kHeadDim / 2}, 0, Little(1.0f) + Little(8.0f)});
  const Opened divided(file);
  ASSERT_TRUE(divided.plan.ok()) << divided.error();
  EXPECT_EQ(divided.plan->spec.divided, (FrequencyDivisors{{1, 8}}));
  file.tensors.back() = Tensor("rope_freqs.weight", {3});
  EXPECT_THAT(Opened(file).error(), AllOf(HasSubstr("rope_freqs.weight"), HasSubstr("3")));
}

// As converters say of Qwen3-Coder and of experts in one group.
TEST(GgufCheckpointTest, WhatThereIsNoneOfMayBeSaid) {
  TestGguf file = Tiny();
  for (const char* group : {"expert_group_count", "expert_group_used_count"}) file.U32(StrCat("qwen3moe.", group), 1);
  for (const char* none : {"expert_shared_count", "expert_shared_feed_forward_length"}) file.U32(StrCat("qwen3moe.", none), 0);
  const Opened opened(file);
  ASSERT_TRUE(opened.plan.ok()) << opened.error();
  EXPECT_EQ(SpecToJson(opened.plan->spec), SpecToJson(Opened(Tiny()).plan->spec));
  EXPECT_THAT(Opened(Tiny().U32("qwen3moe.expert_shared_feed_forward_length", 8)).error(),
              HasSubstr("unknown key qwen3moe.expert_shared_feed_forward_length (8)"));
}

TEST(GgufCheckpointTest, KeepsTheChatTemplate) {
  EXPECT_EQ(Opened(Tiny()).checkpoint->chat().chat_template, "");
  EXPECT_EQ(Opened(Tiny().String("tokenizer.chat_template", "{{ x }}")).checkpoint->chat().chat_template, "{{ x }}");
}

TEST(GgufCheckpointTest, KeepsTheSamplingThatIsRecommended) {
  TestGguf file = Tiny();
  EXPECT_EQ(Opened(file).checkpoint->chat().sampling_defaults, "");
  file.U32("general.sampling.top_k", 20).F32("general.sampling.temp", 0.5f).F32("general.sampling.penalty_repeat", 1);
  EXPECT_EQ(Opened(file).checkpoint->chat().sampling_defaults, R"({"repetition_penalty":1.0,"temperature":0.5,"top_k":20})");
  EXPECT_THAT(Opened(Tiny().F32("general.sampling.top_p", 2)).error(),
              AllOf(HasSubstr("general.sampling.top_p"), HasSubstr("2")));
}

// As in the first files with experts, "blk.0.ffn_up.2.weight".
TEST(GgufCheckpointTest, ExpertsMayBeTensorsOfTheirOwn) {
  TestGguf apart = Tiny();
  for (const std::string part : {"gate", "up", "down"}) {
    const TestGguf::Tensor fused = Named(apart, "blk.0.ffn_" + part + "_exps.weight");
    std::erase_if(apart.tensors, [&](const auto& tensor) { return tensor.name == fused.name; });
    const size_t bytes = fused.data.size() / kExperts;
    for (uint32_t i = 0; i < kExperts; ++i) {
      apart.tensors.push_back({"blk.0.ffn_" + part + "." + std::to_string(i) + ".weight",
                               {fused.extents[0], fused.extents[1]},
                               fused.type,
                               fused.data.substr(i * bytes, bytes)});
    }
  }
  TemporaryFolder folder;
  WriteContents(folder / "together.gguf", Tiny().Bytes());
  WriteContents(folder / "apart.gguf", apart.Bytes());
  for (const std::string name : {"together", "apart"}) {
    const CommandResult packed = RunPack({folder / (name + ".gguf"), folder / name});
    ASSERT_EQ(packed.exit_code, 0) << packed.err;
  }
  EXPECT_TRUE(FileContents(folder / "apart") == FileContents(folder / "together"));
}

// One layer of deepseek2. `apart`: as files have been since April 2025, with keys, transposed, and values in tensors of their
// own.
TestGguf TinyLatent(bool apart) {
  constexpr uint32_t heads = 2, nope = 8, rope = 4, value = 8, rank = 16;
  TestGguf file = Tiny();
  std::erase_if(file.keys, [](const auto& key) { return key.first.starts_with("qwen3moe."); });
  file.Remove("general.architecture");
  file.String("general.architecture", "deepseek2").U32("deepseek2.block_count", 1).U32("deepseek2.embedding_length", kHidden);
  file.U32("deepseek2.attention.head_count", heads).U32("deepseek2.context_length", 64).U32("deepseek2.expert_count", kExperts);
  file.U32("deepseek2.expert_used_count", 2).U32("deepseek2.expert_feed_forward_length", kFfn);
  file.U32("deepseek2.expert_shared_count", 0).F32("deepseek2.attention.layer_norm_rms_epsilon", 1e-6f);
  file.U32("deepseek2.rope.dimension_count", rope).U32("deepseek2.attention.kv_lora_rank", rank);
  file.U32("deepseek2.attention.head_count_kv", apart ? 1 : heads);
  file.U32("deepseek2.attention.key_length", apart ? rank + rope : nope + rope);
  file.U32("deepseek2.attention.value_length", apart ? rank : value);
  if (apart) file.U32("deepseek2.attention.key_length_mla", nope + rope).U32("deepseek2.attention.value_length_mla", value);
  std::erase_if(file.tensors, [](const auto& tensor) { return tensor.name.find("attn_") != std::string::npos; });
  file.tensors.push_back(Tensor("blk.0.attn_norm.weight", {kHidden}));
  file.tensors.push_back(Tensor("blk.0.attn_q.weight", {kHidden, heads * (nope + rope)}));
  file.tensors.push_back(Tensor("blk.0.attn_kv_a_mqa.weight", {kHidden, rank + rope}));
  file.tensors.push_back(Tensor("blk.0.attn_kv_a_norm.weight", {rank}));
  file.tensors.push_back(Tensor("blk.0.attn_output.weight", {heads * value, kHidden}));
  const auto number = [](uint32_t head, uint32_t row, uint32_t column) {
    return Little(0.01f * static_cast<float>((head * (nope + value) + row) * rank + column));
  };
  std::string together, keys, values;
  for (uint32_t head = 0; head < heads; ++head) {
    for (uint32_t row = 0; row < nope + value; ++row) {
      for (uint32_t column = 0; column < rank; ++column) {
        together += number(head, row, column);
        if (row >= nope) values += number(head, row, column);
      }
    }
    for (uint32_t column = 0; column < rank; ++column) {
      for (uint32_t row = 0; row < nope; ++row) keys += number(head, row, column);
    }
  }
  if (apart) {
    file.tensors.push_back({"blk.0.attn_k_b.weight", {nope, rank, heads}, 0, keys});
    file.tensors.push_back({"blk.0.attn_v_b.weight", {rank, value, heads}, 0, values});
  } else {
    file.tensors.push_back({"blk.0.attn_kv_b.weight", {rank, heads * (nope + value)}, 0, together});
  }
  return file;
}

TEST(GgufCheckpointTest, KeysAndValuesOfALatentMayBeOneTensor) {
  TemporaryFolder folder;
  for (const std::string name : {"together", "apart"}) {
    WriteContents(folder / (name + ".gguf"), TinyLatent(name == "apart").Bytes());
    const CommandResult packed = RunPack({folder / (name + ".gguf"), folder / name});
    ASSERT_EQ(packed.exit_code, 0) << packed.err;
  }
  EXPECT_TRUE(FileContents(folder / "apart") == FileContents(folder / "together"));
}

TEST(GgufCheckpointTest, GateAndUpMayBeOneTensor) {
  TestGguf fused = Tiny();
  const TestGguf::Tensor gate = Named(fused, "blk.0.ffn_gate_exps.weight"), up = Named(fused, "blk.0.ffn_up_exps.weight");
  std::erase_if(fused.tensors, [&](const auto& tensor) { return tensor.name == gate.name || tensor.name == up.name; });
  std::string both;
  const size_t bytes = gate.data.size() / kExperts;
  for (uint32_t i = 0; i < kExperts; ++i) both += gate.data.substr(i * bytes, bytes) + up.data.substr(i * bytes, bytes);
  fused.tensors.push_back({"blk.0.ffn_gate_up_exps.weight", {kHidden, 2 * kFfn, kExperts}, gate.type, both});
  TemporaryFolder folder;
  WriteContents(folder / "apart.gguf", Tiny().Bytes());
  WriteContents(folder / "fused.gguf", fused.Bytes());
  for (const std::string name : {"apart", "fused"}) {
    const CommandResult packed = RunPack({folder / (name + ".gguf"), folder / name});
    ASSERT_EQ(packed.exit_code, 0) << packed.err;
  }
  EXPECT_TRUE(FileContents(folder / "apart") == FileContents(folder / "fused"));
  Named(fused, "blk.0.ffn_gate_up_exps.weight").extents[1] = 2 * kFfn - 1;
  Named(fused, "blk.0.ffn_gate_up_exps.weight").data.resize(both.size() - kExperts * kHidden * sizeof(float));
  EXPECT_THAT(Opened(fused).error(), HasSubstr("ffn_gate_exps.weight")) << "no two halves";
}

TEST(GgufCheckpointTest, LayersThatPredictFurtherTokensAreLeftOut) {
  TestGguf file = Tiny();
  file.Remove("qwen3moe.block_count");
  file.U32("qwen3moe.block_count", 2).U32("qwen3moe.nextn_predict_layers", 1);
  file.tensors.push_back(Tensor("blk.1.attn_norm.weight", {kHidden}));
  file.tensors.push_back(Tensor("blk.1.nextn.eh_proj.weight", {2 * kHidden, kHidden}));
  const Opened opened(file);
  ASSERT_TRUE(opened.plan.ok()) << opened.error();
  EXPECT_EQ(opened.plan->spec.layers, 1);
  file.tensors.push_back(Tensor("blk.2.attn_norm.weight", {kHidden}));
  EXPECT_THAT(Opened(file).error(), HasSubstr("unknown tensor \"blk.2.attn_norm.weight\""));
}

TEST(GgufCheckpointTest, VectorsMayBeMatricesOfOneRow) {
  TestGguf file = Tiny();
  Named(file, "blk.0.attn_norm.weight").extents = {kHidden, 1};
  const Opened opened(file);
  EXPECT_TRUE(opened.plan.ok()) << opened.error();
}

TEST(GgufCheckpointTest, EveryArchitectureHasAFamilyAndNamesForAllItsTensors) {
  for (const GgufArchitecture& architecture : GgufArchitectures()) {
    const auto family = FamilyNamed(architecture.model_type);
    ASSERT_TRUE(family.ok()) << architecture.name;
    const auto spec = (*family)->read_spec(TinyConfig(architecture.model_type).dump(), "");
    ASSERT_TRUE(spec.ok()) << spec.status();
    for (const TrunkTensor& tensor : (*family)->trunk_tensors(*spec))
      EXPECT_FALSE(architecture.TrunkNames(tensor.store_name).empty()) << tensor.store_name;
  }
}

TEST(GgufCheckpointTest, RowsOfNeighbourPairsBecomeHalves) {
  EXPECT_EQ(NeighbourPairsOrder(2, 6), (std::vector<uint32_t>{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11}));
}

// Blocks are stored with their codes and scales, each layer and part as the file has it; routers and norms as their numbers are.
TEST(GgufCheckpointTest, KeepsBlocks) {
  constexpr uint32_t kQ8_0 = 8;
  const GgmlType& type = *FindGgmlType(kQ8_0);
  TestGguf file = Tiny();
  TestGguf::Tensor& down = Named(file, "blk.0.ffn_down_exps.weight");
  std::mt19937 random(1);
  down.type = kQ8_0;
  down.data.clear();
  for (uint32_t block = 0; block < kExperts * kHidden * kFfn / 32; ++block) {
    down.data += Little(FloatToFloat16(0.01f * static_cast<float>(1 + random() % 100)));
    for (int i = 0; i < 32; ++i) down.data += static_cast<char>(random() % 255 - 127);
  }
  TemporaryFolder folder;
  WriteContents(folder / "tiny.gguf", file.Bytes());
  const CommandResult packed = RunPack({folder / "tiny.gguf", folder / "out"});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  auto store = StoreReader::Open(folder / "out");
  ASSERT_TRUE(store.ok()) << store.status();
  const std::string bytes = FileContents(folder / "out");
  const auto& layout = (*store)->description().precisions[0].layers[0];
  for (int expert = 0; expert < static_cast<int>(kExperts); ++expert) {
    for (const ExpertSegment& segment : layout.segments) {
      const bool kept = segment.part == ExpertPart::kDown;
      EXPECT_EQ(segment.format, kept ? type.kept : FormatId::kF32);
      if (!kept) continue;
      const char* record = bytes.data() + (*store)->RecordOffset({LayerId(0), expert, kReferencePrecision}) + segment.offset;
      std::vector<float> found(kFfn), expected(kFfn);
      for (uint32_t row = 0; row < kHidden; ++row) {
        const size_t row_bytes = RowBytes(type, kFfn);
        const char* source = down.data.data() + (static_cast<uint32_t>(expert) * kHidden + row) * row_bytes;
        DecodeRow(type.kept, reinterpret_cast<const std::byte*>(record), kFfn, static_cast<int>(row), found.data());
        DecodeRow(type, reinterpret_cast<const std::byte*>(source), kFfn, expected.data());
        EXPECT_EQ(found, expected) << expert << " " << row;
      }
    }
  }
  auto router = (*store)->FindTensor("layers.0.router");
  ASSERT_TRUE(router.ok());
  EXPECT_EQ((*router)->format, FormatId::kF32);
}

TEST(GgufCheckpointTest, FamiliesAreListedWithTheirArchitectures) {
  const CommandResult text = RunPack({"--list-families"}), as_json = RunPack({"--list-families", "--json"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  const auto json = nlohmann::json::parse(as_json.out);
  std::set<std::string> architectures;
  for (const auto& family : json["families"]) {
    for (const auto& name : family["gguf_architectures"]) architectures.insert(name);
  }
  EXPECT_EQ(json["families"].size(), Families().size());
  EXPECT_EQ(architectures.size(), GgufArchitectures().size());
  for (const GgufArchitecture& architecture : GgufArchitectures())
    EXPECT_THAT(text.out, HasSubstr(std::string(architecture.name)));
  EXPECT_EQ(json["gguf_types"].size(), GgmlTypes().size());
}

}  // namespace gguf_checkpoint_test
}  // namespace moed
