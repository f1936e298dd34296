#pragma once

#include "core/base/ids.h"

namespace moed {

// An expert that may be wanted soon.
struct Guess {
  ExpertKey key;
  float probability = 0;
  int layer_distance = 1;  // in MoE layers from the layer it was guessed at
  Precision precision = kReferencePrecision;
};

}  // namespace moed
