// What free room of the cache is filled with while the disk has nothing else to do, in which order.
#pragma once

#include <vector>

#include "core/base/ids.h"
#include "core/expert/part_context.h"
#include "core/expert/presets/preset.h"

namespace moed {

// Every expert once, at the precision of requests that do not say; nothing where the preset does not fill. The most popular
// first, as the policy knows them, and as the predictor does where that knows nothing; of equals expert 0 of every layer, then
// expert 1 of every layer, ..., so that layers share room for some of them evenly.
std::vector<CachedKey> FillOrder(const PresetSetup& setup, const PresetParts& parts, const ExpertModelShape& model);

}  // namespace moed
