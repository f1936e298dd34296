// What Control tells of the loaded model and of the server: constant once the memory is planned.
#pragma once

#include "core/expert/presets/preset.h"
#include "core/model/spec.h"
#include "core/serving/serving_plan.h"
#include "core/store/store.h"
#include "moe/v1/control.pb.h"

namespace moed {

moe::v1::ModelInfo DescribeModel(const StoreReader& store, const ModelSpec& spec, int max_context);
moe::v1::ServerInfo DescribeServer(const ServingOptions& options, const ServingPlan& plan, const PresetSetup& preset);

}  // namespace moed
