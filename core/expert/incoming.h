// What is read into the cache, and why.
#pragma once

#include <cstdint>

#include "core/base/ids.h"

namespace moed {

enum class LoadReason : uint8_t { kDemand = 0, kPrefetch = 1, kFill = 2 };  // kFill: of free room, which evicts nothing
inline constexpr int kLoadReasons = 3;

struct Incoming {
  CachedKey key;
  uint64_t bytes = 0;
  LoadReason reason = LoadReason::kDemand;
  LayerId current_layer;  // the layer being computed
};

}  // namespace moed
