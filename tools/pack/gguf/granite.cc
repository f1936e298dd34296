#include "tools/pack/gguf/granite.h"

namespace moed {
namespace {

// 1 where it is absent or 0.
double Multiplier(GgufSpecReader& reader, std::string_view key) {
  const double value = reader.NumberOr(key, 1, 0, 1e6);
  return value == 0 ? 1 : value;
}

}  // namespace

void ReadGgufGranite(GgufSpecReader& reader, ModelSpec& spec) {
  spec.embedding_scale = Multiplier(reader, "embedding_scale");
  spec.residual_scale = Multiplier(reader, "residual_scale");
  spec.attention_scale = reader.NumberOr("attention.scale", 0, 0, 1e3);
  spec.logits_scale = 1 / Multiplier(reader, "logit_scale");
  spec.unrotated = !reader.BoolOr("rope.scaling.finetuned", true);
  ReadOneFfnWidth(reader, spec);
  spec.norm_topk_prob = true;
}

}  // namespace moed
