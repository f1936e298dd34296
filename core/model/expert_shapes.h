// The matrices of a model's experts, as a store has them.
#pragma once

#include "core/model/spec.h"
#include "core/store/layout.h"

namespace moed {

inline PartShapes ExpertShapes(const ModelSpec& spec) {
  const MatrixShape into = {spec.expert_ffn, spec.hidden};
  return {spec.gated() ? into : MatrixShape{}, into, MatrixShape{spec.hidden, spec.expert_ffn}};
}

}  // namespace moed
