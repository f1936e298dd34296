// What all Gemma 4 models with experts have in common beside their sizes.
#pragma once

#include "core/model/spec.h"

namespace moed {

// spec.hidden is known.
void SetGemma4Traits(ModelSpec& spec);

}  // namespace moed
