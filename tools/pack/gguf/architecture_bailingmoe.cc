// bailingmoe (Ling's first version): leading dense layers, shared experts without a gate, probabilities by softmax. bailingmoe2
// (Ling 2.0, Ring 2.0): sigmoid scores with a correction among the best groups, norms of queries and keys, a part of each head
// rotated; queries, keys and values are rows of one tensor. Sarvam is the same with whole heads rotated.
#include <string>
#include <utility>

#include "core/base/status.h"
#include "core/model/matrix_parts.h"
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr int kMostShared = 64;

absl::StatusOr<ModelSpec> ReadFirst(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "bailing_moe");
  ReadFfnWidths(reader, spec);
  spec.shared_ffn = reader.Int("expert_shared_count", 0, kMostShared) * spec.expert_ffn;
  spec.norm_topk_prob = spec.top_k > 1 && reader.BoolOr("expert_weights_norm", false);
  return reader.Finish(std::move(spec));
}

absl::StatusOr<ModelSpec> ReadSecond(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "bailing_moe_v2", {.partial_rotary = true, .gating = true, .weights_scale = true});
  ReadFfnWidths(reader, spec);
  const int shared = reader.IntOr("expert_shared_feed_forward_length", spec.expert_ffn, 1, 1 << 20);
  spec.shared_ffn = reader.Int("expert_shared_count", 0, kMostShared) * shared;
  spec.qk_norm = ModelSpec::QkNorm::kPerHead;
  ReadGroupedSigmoid(reader, spec);
  spec.norm_topk_prob = spec.top_k > 1 && reader.BoolOr("expert_weights_norm", false);
  return reader.Finish(std::move(spec));
}

constexpr GgufName kNames[] = {{"q", "attn_qkv.query"}, {"k", "attn_qkv.key"}, {"v", "attn_qkv.value"}};

std::vector<TensorPart> Parts(const ModelSpec& spec) {
  std::vector<TensorPart> parts;
  for (int layer = 0; layer < spec.layers; ++layer) AddQueryKeyValue(spec, StrCat("blk.", layer, ".attn_qkv."), parts);
  return parts;
}

constexpr std::string_view kSecondToo[] = {"bailing_moe", "sarvam_moe"};  // what most of its config.json say, and Sarvam

}  // namespace

GgufArchitecture BailingMoeArchitecture() {
  return {.name = "bailingmoe", .model_type = "bailing_moe", .read_spec = ReadFirst, .pairs_neighbours = true};
}

GgufArchitecture BailingMoe2Architecture() {
  return {.name = "bailingmoe2",
          .model_type = "bailing_moe_v2",
          .read_spec = ReadSecond,
          .own_names = kNames,
          .more_model_types = kSecondToo,
          .parts = Parts};
}

}  // namespace moed
