// A specification that is whole, for tests that change a part of it.
#pragma once

#include "core/model/spec.h"

namespace moed {

inline ModelSpec GoodSpec() {
  ModelSpec spec;
  spec.family = "qwen2_moe";
  spec.layers = 3, spec.hidden = 48, spec.heads = 6, spec.kv_heads = 2, spec.head_dim = 8;
  spec.vocabulary = 300, spec.max_positions = 512, spec.rms_eps = 1e-6f, spec.rope_theta = 1e6;
  spec.qkv_bias = true;
  spec.experts = 5, spec.top_k = 2, spec.expert_ffn = 24, spec.shared_ffn = 40, spec.shared_gate = true, spec.dense_ffn = 96;
  spec.moe = {true, false, true};
  spec.bos = {TokenId(1)};
  spec.eos = {TokenId(2), TokenId(7)};
  return spec;
}

// With 51 MiB of experts at 8 bits.
inline ModelSpec LargerSpec() {
  ModelSpec spec = GoodSpec();
  spec.layers = 8, spec.moe.assign(8, true);
  spec.hidden = 256, spec.heads = 8, spec.head_dim = 32, spec.kv_heads = 2;
  spec.experts = 32, spec.expert_ffn = 256;
  return spec;
}

}  // namespace moed
