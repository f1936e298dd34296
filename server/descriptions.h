// What Control tells of the loaded model and of the server that is constant once the memory is planned.
#pragma once

#include <string_view>

#include "core/expert/presets/preset.h"
#include "core/model/spec.h"
#include "core/serving/serving_plan.h"
#include "core/store/store.h"
#include "moe/v1/control.pb.h"
#include "server/startup/config.h"

namespace moed {

moe::v1::ModelInfo DescribeModel(const StoreReader& store, const ModelSpec& spec, int max_context);
// Why there is no prompt lookup: a setting, or layers whose state cannot be taken back. Empty: there is.
std::string_view NoPromptLookup(const Config& config, const ModelSpec& spec);
// `no_prompt_lookup`: why there is none, or empty.
moe::v1::ServerInfo DescribeServer(const ServingOptions& options, const ServingPlan& plan, const PresetSetup& preset,
                                   std::string_view no_prompt_lookup);

}  // namespace moed
