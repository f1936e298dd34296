// What the metadata of Granite 3 and Granite 4 have in common.
#pragma once

#include "core/model/spec.h"
#include "tools/pack/gguf/spec_reader.h"

namespace moed {

// The multipliers of embeddings, attention, residuals and logits, whether heads turn, and the experts.
void ReadGgufGranite(GgufSpecReader& reader, ModelSpec& spec);

}  // namespace moed
