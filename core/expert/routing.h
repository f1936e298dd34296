// What the router chose, as the expert path sees it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/expert_choice.h"
#include "core/base/fidelity.h"
#include "core/base/ids.h"

namespace moed {

enum class Phase : uint8_t { kPrefill = 0, kDecode = 1 };
inline constexpr int kPhases = 2;

// The k experts of one token in one layer, highest probability first. After masking, a choice of probability 0 is none.
struct TokenRouting {
  SequenceId sequence;
  TokenId token;
  Phase phase = Phase::kDecode;
  std::span<const ExpertChoice> choices;
  Fidelity fidelity;
  // By the router's mask, before top-k: how many of the unmasked choices are gone, and their share of the unmasked choices' mass.
  int masked = 0;
  float masked_share = 0;
  // That it follows in its sequence, whichever step computed that one; -1: it is the first.
  TokenId before{-1};
};

// What the shares of a token's choices are taken of.
inline float GateMass(const TokenRouting& token) {
  float mass = 0;
  for (const ExpertChoice& choice : token.choices) mass += choice.probability;
  return mass;
}

// Whether its probabilities are numbers. Those of a router that was given none are not, and nothing is learned from them.
inline bool HasNumbers(const TokenRouting& token) {
  return std::all_of(token.choices.begin(), token.choices.end(),
                     [](const ExpertChoice& choice) { return std::isfinite(choice.probability); });
}

// One layer of one step: all tokens of the batch.
struct LayerRouting {
  LayerId layer;
  std::span<const TokenRouting> tokens;
};

}  // namespace moed
