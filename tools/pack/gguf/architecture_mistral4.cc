// mistral4 (Mistral 4): latent attention and a softmax router. Queries grow with their position where the file says so.
#include "core/kernels/router.h"
#include "tools/pack/gguf/architectures.h"
#include "tools/pack/gguf/latent_attention.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {
namespace {

constexpr int kMostShared = 64;

absl::StatusOr<ModelSpec> ReadSpec(const GgufModel& model) {
  GgufSpecReader reader(model);
  ModelSpec spec = ReadGgufDecoder(reader, "mistral4", {.rope_scaling = true, .weights_scale = true, .latent = true});
  spec.rope_interleaved = true;
  ReadGgufLatentYarn(reader, spec);
  ReadFfnWidths(reader, spec);
  spec.shared_ffn = reader.Int("expert_shared_count", 0, kMostShared) * spec.expert_ffn;
  ReadGroups(reader, spec);
  spec.router_group_rank = spec.router_groups > 1 ? GroupRank::kTwoLargestKeys : GroupRank::kLargestKey;
  spec.norm_topk_prob = reader.BoolOr("expert_weights_norm", false);
  spec.router_epsilon = 1e-20;
  const double temperature = reader.NumberOr("attention.temperature_scale", 0, 0, 100);
  const int positions = reader.IntOr("attention.temperature_length", 0, 0, 1 << 24);
  if (temperature > 0) spec.temperature = {.scale = temperature, .positions = positions};
  return reader.Finish(std::move(spec));
}

}  // namespace

GgufArchitecture Mistral4Architecture() {
  return {.name = "mistral4",
          .model_type = "mistral4",
          .read_spec = ReadSpec,
          .own_names = kGgufLatentNames,
          .parts = GgufLatentParts};
}

}  // namespace moed
