// Layers of Gated DeltaNet in GGUF files: Qwen3-Next and Qwen3.5.
#pragma once

#include <span>
#include <vector>

#include "core/model/family.h"
#include "core/model/spec.h"
#include "tools/pack/gguf/architecture.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {

// What the two architectures share: which layers are recurrent and their sizes, gated attention with normed heads, the experts
// and the gated shared one. `family` is the spec's.
ModelSpec ReadGgufDeltaNet(GgufSpecReader& reader, std::string_view family);

// Of both; names of parts are those of GgufDeltaNetParts.
std::span<const GgufName> GgufDeltaNetNames();
std::vector<TensorPart> GgufDeltaNetParts(const ModelSpec& spec);

}  // namespace moed
