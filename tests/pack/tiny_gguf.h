// A GGUF of one small layer, and what is made of it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/pack/gguf_writer.h"
#include "tests/pack/tiny_checkpoint.h"
#include "tools/pack/plan.h"

namespace moed {
namespace tiny_gguf {

inline constexpr uint32_t kHidden = 32, kVocabulary = 6, kExperts = 3, kFfn = 64, kHeadDim = 4;

inline std::string Floats(size_t count, float first = 0.5f) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes += Little(first + static_cast<float>(i % 7));
  return bytes;
}

inline TestGguf::Tensor Tensor(std::string name, std::vector<uint64_t> extents) {
  size_t count = 1;
  for (const uint64_t extent : extents) count *= extent;
  return {std::move(name), std::move(extents), 0, Floats(count)};
}

// One layer of qwen3moe: 4 heads of 4, 2 of keys.
inline TestGguf Tiny() {
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

inline TestGguf::Tensor& Named(TestGguf& file, std::string_view name) {
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

}  // namespace tiny_gguf
}  // namespace moed
