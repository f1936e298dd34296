// What SmallThinker's models have in common beside their sizes, for the readers of their files.
#pragma once

#include <vector>

#include "core/model/spec.h"

namespace moed {

// [layers] each: heads of a layer turn, and it has a window.
void SetSmallThinkerLayers(ModelSpec& spec, const std::vector<bool>& turns, const std::vector<bool>& slides, int window);
void SetSmallThinkerTraits(ModelSpec& spec, RouterScoring scoring);

}  // namespace moed
