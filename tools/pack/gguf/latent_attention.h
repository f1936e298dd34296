// Multi-head latent attention in GGUF files.
#pragma once

#include <vector>

#include "tools/pack/gguf/architecture.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {

inline constexpr GgufName kGgufLatentNames[] = {
    {"q", "attn_q.weight"},           {"q", "attn_q_b.weight"},
    {"q_a", "attn_q_a.weight"},       {"q_a_norm", "attn_q_a_norm.weight"},
    {"kv_a", "attn_kv_a_mqa.weight"}, {"kv_a_norm", "attn_kv_a_norm.weight"},
    {"k_b", "attn_k_b.weight"},       {"v_b", "attn_v_b.weight"},
};
// YaRN, and the scale of the scores that goes with it.
void ReadGgufLatentYarn(GgufSpecReader& reader, ModelSpec& spec);
// The projections of keys and values, which the first files have in one tensor.
std::vector<TensorPart> GgufLatentParts(const ModelSpec& spec);

}  // namespace moed
