// What every Llama 4 has, whichever file says the rest.
#pragma once

#include <vector>

#include "core/model/spec.h"

namespace moed {

// `rotate`: whether each layer does. The others' queries have a temperature of this scale that grows every so many positions; 0:
// none. `norms_heads`: those that rotate.
void SetLlama4Traits(ModelSpec& spec, const std::vector<bool>& rotate, bool norms_heads, double temperature, int positions);

}  // namespace moed
