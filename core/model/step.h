// What the blocks of a layer share during one step.
#pragma once

#include <vector>

#include "core/base/trace.h"
#include "core/kernels/backend.h"
#include "core/model/batch.h"
#include "core/model/kv_pool.h"
#include "core/model/scratch.h"
#include "core/model/spec.h"

namespace moed {

struct Step {
  const ModelSpec& spec;
  Backend& backend;
  KvPool& kv;
  Trace* trace;                          // may be null
  std::vector<FormatId> expert_formats;  // [precision]
  Scratch scratch;
  Batch batch;
};

}  // namespace moed
