#include "tools/pack/gguf/latent_attention.h"

#include <cmath>
#include <string>

#include "core/base/status.h"
#include "core/model/decoder_tensors.h"

namespace moed {

void ReadGgufLatentYarn(GgufSpecReader& reader, ModelSpec& spec) {
  spec.yarn = ReadGgufYarn(reader, true);
  reader.Only("rope.scaling.yarn_attn_factor", {1});
  const double all_dims = reader.NumberOr("rope.scaling.yarn_log_multiplier", 0, 0, 10) / 0.1;
  if (!spec.yarn) return;
  spec.yarn->attention_factor = 1;  // one magnitude divided by the other
  if (spec.yarn->factor <= 1 || all_dims == 0) return;
  const double magnitude = 0.1 * all_dims * std::log(spec.yarn->factor) + 1.0;
  spec.attention_scale = magnitude * magnitude * spec.AttentionScale();
}

std::vector<TensorPart> GgufLatentParts(const ModelSpec& spec) {
  std::vector<TensorPart> parts = LatentParts(spec);  // of each layer the keys, then the values
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string layer = StrCat("blk.", i / 2, ".");
    parts[i].name = layer + (i % 2 == 0 ? "attn_k_b.weight" : "attn_v_b.weight");
    parts[i].whole = layer + "attn_kv_b.weight";
  }
  return parts;
}

}  // namespace moed
