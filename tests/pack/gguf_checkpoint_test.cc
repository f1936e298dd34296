// What becomes of a GGUF's metadata and tensors. Whole models: tests/model/gguf_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "core/quant/half.h"
#include "core/store/store.h"
#include "tests/base/damaged_bytes.h"
#include "tests/pack/command.h"
#include "tests/pack/gguf_writer.h"
#include "tests/pack/tiny_checkpoint.h"
#include "tools/pack/gguf/architecture.h"
#include "tools/pack/plan.h"

namespace moed {
namespace gguf_checkpoint_test {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kHidden = 32, kVocabulary = 6, kExperts = 3, kFfn = 64, kHeadDim = 4;

std::string Floats(size_t count, float first = 0.5f) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes += Little(first + static_cast<float>(i % 7));
  return bytes;
}

TestGguf::Tensor Tensor(std::string name, std::vector<uint64_t> extents) {
  size_t count = 1;
  for (const uint64_t extent : extents) count *= extent;
  return {std::move(name), std::move(extents), 0, Floats(count)};
}

// One layer of qwen3moe: 4 heads of 4, 2 of keys.
TestGguf Tiny() {
  TestGguf file;
  file.String("general.architecture", "qwen3moe").U32("qwen3moe.block_count", 1).U32("qwen3moe.embedding_length", kHidden);
  file.U32("qwen3moe.attention.head_count", 4).U32("qwen3moe.attention.head_count_kv", 2).U32("qwen3moe.context_length", 64);
  file.U32("qwen3moe.attention.key_length", kHeadDim).F32("qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f);
  file.F32("qwen3moe.rope.freq_base", 1e6f).U32("qwen3moe.expert_count", kExperts).U32("qwen3moe.expert_used_count", 2);
  file.U32("qwen3moe.expert_feed_forward_length", kFfn).U32("general.file_type", 0);
  file.String("tokenizer.ggml.model", "gpt2").String("tokenizer.ggml.pre", "qwen2").U32("tokenizer.ggml.eos_token_id", 0);
  file.Strings("tokenizer.ggml.tokens", {"<|endoftext|>", "a", "b", "ab", "<|im_end|>", "[PAD5]"})
      .Strings("tokenizer.ggml.merges", {"a b"});
  file.I32s("tokenizer.ggml.token_type", {3, 1, 1, 1, 3, 5});
  file.tensors = {Tensor("token_embd.weight", {kHidden, kVocabulary}),
                  Tensor("output_norm.weight", {kHidden}),
                  Tensor("blk.0.attn_norm.weight", {kHidden}),
                  Tensor("blk.0.attn_q.weight", {kHidden, 16}),
                  Tensor("blk.0.attn_k.weight", {kHidden, 8}),
                  Tensor("blk.0.attn_v.weight", {kHidden, 8}),
                  Tensor("blk.0.attn_output.weight", {16, kHidden}),
                  Tensor("blk.0.attn_q_norm.weight", {kHeadDim}),
                  Tensor("blk.0.attn_k_norm.weight", {kHeadDim}),
                  Tensor("blk.0.ffn_norm.weight", {kHidden}),
                  Tensor("blk.0.ffn_gate_inp.weight", {kHidden, kExperts}),
                  Tensor("blk.0.ffn_gate_exps.weight", {kHidden, kFfn, kExperts}),
                  Tensor("blk.0.ffn_up_exps.weight", {kHidden, kFfn, kExperts}),
                  Tensor("blk.0.ffn_down_exps.weight", {kFfn, kHidden, kExperts})};
  return file;
}

TestGguf::Tensor& Named(TestGguf& file, std::string_view name) {
  for (TestGguf::Tensor& tensor : file.tensors) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << name;
  return file.tensors.front();
}

struct Opened {
  TemporaryFolder folder;
  absl::StatusOr<Checkpoint> checkpoint = absl::UnknownError("");
  absl::StatusOr<PackPlan> plan = absl::UnknownError("");

  explicit Opened(const TestGguf& file) : Opened(file.Bytes()) {}
  explicit Opened(const std::string& bytes) {
    WriteContents(folder / "tiny.gguf", bytes);
    checkpoint = Checkpoint::Open(folder / "tiny.gguf");
    if (checkpoint.ok()) plan = MakePlan(*checkpoint, {{Encoding{FormatId::kF32}}, Encoding{FormatId::kF32}});
  }
  std::string error() const { return std::string((checkpoint.ok() ? plan.status() : checkpoint.status()).message()); }
};

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

TEST(GgufCheckpointTest, KeepsTheChatTemplate) {
  EXPECT_EQ(Opened(Tiny()).checkpoint->chat().chat_template, "");
  EXPECT_EQ(Opened(Tiny().String("tokenizer.chat_template", "{{ x }}")).checkpoint->chat().chat_template, "{{ x }}");
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

TEST(GgufCheckpointTest, SaysWhatItDoesNotUnderstand) {
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

constexpr uint32_t kNvfp4 = 40, kNvfp4Bytes = 36;
constexpr char kDown[] = "blk.0.ffn_down_exps";

// Any codes and scales; a row of them is one block.
TestGguf WithNvfp4(std::vector<float> scales) {
  TestGguf file = Tiny();
  TestGguf::Tensor& down = Named(file, std::string(kDown) + ".weight");
  std::mt19937 random(2);
  down.type = kNvfp4;
  down.data.clear();
  for (uint32_t i = 0; i < kExperts * kHidden * kNvfp4Bytes; ++i) {
    down.data += static_cast<char>(i % kNvfp4Bytes < 4 ? random() % 0x7f : random() % 256);
  }
  if (scales.empty()) return file;
  std::string bytes;
  for (const float scale : scales) bytes += Little(scale);
  file.tensors.push_back({std::string(kDown) + ".scale", {scales.size()}, 0, bytes});
  file.tensors.push_back({std::string(kDown) + ".input_scale", {scales.size()}, 0, bytes});
  return file;
}

// Of a block: level times the scale, which is the number of e4m3 times that of the tensor, rounded.
float WeightOfNvfp4(const std::string& data, uint32_t block, uint32_t column, float number) {
  const auto byte = [&](uint32_t at) { return static_cast<uint8_t>(data[block * kNvfp4Bytes + at]); };
  const uint32_t part = column / 16, in_part = column % 16;
  const int code = byte(4 + 8 * part + in_part % 8) >> (in_part < 8 ? 0 : 4) & 15, scale = byte(part);
  const auto e4m3 = static_cast<float>(scale < 8 ? std::ldexp(scale, -9) : std::ldexp(8 + scale % 8, scale / 8 - 10));
  const float numbers[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return (code < 8 ? 1.0f : -1.0f) * numbers[code % 8] * (e4m3 * number);
}

// llama.cpp's converter leaves it out where it is 1.
TEST(GgufCheckpointTest, MatricesOfNvfp4HaveANumberBesideThem) {
  const std::vector<float> each = {0.3f, 0.00012345f, 7};
  for (const std::vector<float>& scales : {each, std::vector<float>{0.3f}, std::vector<float>{}}) {
    const TestGguf file = WithNvfp4(scales);
    const std::string data = Named(const_cast<TestGguf&>(file), std::string(kDown) + ".weight").data;
    TemporaryFolder folder;
    WriteContents(folder / "tiny.gguf", file.Bytes());
    for (const std::string formats : {"keep", "f32"}) {
      const std::string out = folder / formats;
      const CommandResult packed = RunPack({folder / "tiny.gguf", out, "--expert-formats", formats});
      ASSERT_EQ(packed.exit_code, 0) << packed.err;
      const auto store = StoreReader::Open(out).value();
      const std::string bytes = FileContents(out);
      for (uint32_t row = 0; row < kExperts * kHidden; ++row) {
        const int expert = static_cast<int>(row / kHidden);
        const ExpertSegment& segment = store->description().precisions[0].layers[0].segments.back();
        ASSERT_EQ(segment.part, ExpertPart::kDown);
        ASSERT_EQ(segment.format, formats == "keep" ? FormatId::kNvfp4 : FormatId::kF32);
        const char* record = bytes.data() + store->RecordOffset({LayerId(0), expert, kReferencePrecision}) + segment.offset;
        std::vector<float> found(kFfn), expected;
        DecodeRow(segment.format, reinterpret_cast<const std::byte*>(record), kFfn, static_cast<int>(row % kHidden),
                  found.data());
        const float number = scales.empty() ? 1 : scales[scales.size() == 1 ? 0 : expert];
        for (uint32_t column = 0; column < kFfn; ++column) expected.push_back(WeightOfNvfp4(data, row, column, number));
        EXPECT_EQ(found, expected) << row;
      }
    }
  }
}

TEST(GgufCheckpointTest, NumbersOfNvfp4ThatDoNotFitAreNamed) {
  EXPECT_THAT(Opened(WithNvfp4({1, 1})).error(),
              AllOf(HasSubstr("ffn_down_exps.scale\""), HasSubstr("has 2 numbers, expected 3 or 1")));
  for (const float number : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    EXPECT_THAT(Opened(WithNvfp4({1, number, 1})).error(),
                AllOf(HasSubstr("ffn_down_exps.scale\""), HasSubstr("expected a number from")));
  }
  TestGguf file = WithNvfp4({});
  Named(file, std::string(kDown) + ".weight").data[(kHidden + 3) * kNvfp4Bytes + 2] = '\x7f';
  TemporaryFolder folder;
  WriteContents(folder / "tiny.gguf", file.Bytes());
  EXPECT_THAT(RunPack({folder / "tiny.gguf", folder / "out"}).err,
              AllOf(HasSubstr("ffn_down_exps.weight[1]"), HasSubstr("row 3 from column 32"), HasSubstr("byte 127")));
}

// Every way through the readers ends in a plan or in an error that names the file.
TEST(GgufCheckpointTest, DamagedFilesArePlannedOrRefused) {
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
TEST(GgufCheckpointTest, NumbersThatAreNoneAreNamedByTensor) {
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

TEST(GgufCheckpointTest, ServingAGgufSaysHowToPackIt) {
  TemporaryFolder folder;
  WriteContents(folder / "tiny.gguf", Tiny().Bytes());
  const CommandResult inspected = RunPack({"inspect", folder / "tiny.gguf"});
  EXPECT_EQ(inspected.exit_code, 1);
  EXPECT_THAT(inspected.err,
              HasSubstr("is a GGUF file, not a store; this makes one of it: moed-pack " + (folder / "tiny.gguf") + " OUT"));
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
