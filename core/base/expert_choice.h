// What a router chose for one token in one layer, one slot of its top k.
#pragma once

#include <cstdint>

namespace moed {

struct ExpertChoice {
  int32_t expert = 0;
  float probability = 0;  // the weight its output is multiplied with
};

}  // namespace moed
