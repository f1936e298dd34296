// What files of models with layers of Mamba-2 have in common. Decays are written as they are used.
#pragma once

#include <string>
#include <vector>

#include "core/model/family.h"
#include "core/model/spec.h"
#include "tools/pack/gguf/architecture.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {

// Beside those of attention, which the recurrent layers have other names for.
inline constexpr GgufName kGgufMamba2Names[] = {
    {"q", "attn_q.weight"},
    {"q", "ssm_in.query"},
    {"k", "attn_k.weight"},
    {"k", "ssm_in.key"},
    {"v", "attn_v.weight"},
    {"v", "ssm_in.value"},
    {"o", "attn_output.weight"},
    {"o", "ssm_out.weight"},
    {"attention_gate", "ssm_in.gate"},
    {"convolution", "ssm_conv1d.taps"},
    {"mamba2.convolution_bias", "ssm_conv1d.bias"},
    {"mamba2.step", "ssm_in.step"},
    {"mamba2.step_bias", "ssm_dt.bias"},
    {"mamba2.decay_rate", "ssm_a.heads"},
    {"mamba2.skip", "ssm_d.heads"},
    {"mamba2.norm", "ssm_norm.groups"},
};

// Into spec.mamba2.
void ReadGgufMamba2(GgufSpecReader& reader, ModelSpec& spec);
// Of all recurrent layers.
std::vector<TensorPart> GgufMamba2Parts(const ModelSpec& spec);

}  // namespace moed
