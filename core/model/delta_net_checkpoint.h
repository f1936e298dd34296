// What checkpoints with Gated DeltaNets have in common: their keys of config.json, and tensors that hold several of the store's.
#pragma once

#include <string>
#include <vector>

#include "core/model/decoder_config.h"
#include "core/model/family.h"

namespace moed {

// layer_types or full_attention_interval, and the linear_* keys, into spec.recurrent and spec.delta_net.
void ReadDeltaNet(ConfigReader& config, ModelSpec& spec);
// Experts with a gated shared expert, per-head norms of queries and keys, the gate of attention.
void ReadGatedModel(ConfigReader& config, ModelSpec& spec);

// Queries and gates of attention, which take turns by head in one tensor; the weights of the convolution, which stand by channel.
std::vector<TensorPart> DeltaNetParts(const ModelSpec& spec);
// "model.layers.3.linear_attn."
std::string DeltaNetPrefix(int layer);

// mtp.*: they predict further tokens.
bool IsMultiTokenPrediction(std::string_view checkpoint_name);

}  // namespace moed
