// What the router chose, as the expert path sees it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/ids.h"

namespace moed {

enum class Phase : uint8_t { kPrefill = 0, kDecode = 1 };
inline constexpr int kPhases = 2;

struct ExpertChoice {
  int32_t expert = 0;
  float probability = 0;  // the weight its output is multiplied with
};

// Of the gate mass of a token's choices in a layer, the share that may be computed below the reference precision or left out.
inline constexpr float kLoseNothing = 0;   // exact
inline constexpr float kLoseAnything = 2;  // whatever the preset does

// The k experts of one token in one layer, highest probability first.
struct TokenRouting {
  SessionId session;
  TokenId token;
  Phase phase = Phase::kDecode;
  std::span<const ExpertChoice> choices;
  float may_lose = kLoseNothing;
};

// One layer of one step: all tokens of the batch.
struct LayerRouting {
  LayerId layer;
  std::span<const TokenRouting> tokens;
};

}  // namespace moed
