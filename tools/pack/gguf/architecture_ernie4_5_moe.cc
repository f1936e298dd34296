// ernie4_5-moe: probabilities with a correction, shared experts, neighbouring pairs rotated, rows of q and k as they were.
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr int kMostShared = 64;

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "ernie4_5_moe");
  spec.rope_interleaved = true;
  ReadFfnWidths(reader, spec);
  // expert_shared_feed_forward_length is feed_forward_length divided by the heads of keys, which is theirs only in the released
  // models.
  spec.shared_ffn = reader.IntOr("expert_shared_count", 0, 0, kMostShared) * spec.expert_ffn;
  reader.IntOr("expert_shared_feed_forward_length", 0, 0, 1 << 20);
  spec.norm_topk_prob = true;
  spec.router_correction = true;
  spec.router_epsilon = 1e-12;
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture Ernie45MoeArchitecture() {
  return {.name = "ernie4_5-moe", .model_type = "ernie4_5_moe", .read_spec = ReadSpec};
}

}  // namespace moed
