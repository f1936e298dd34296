// What moed-pack says of a checkpoint that is not packed yet: moed-pack CHECKPOINT OUT --dry-run --json.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/plan/planned_model.h"

namespace moed {

// `path`: the checkpoint, of whose largest file the disk is measured. DATA_LOSS: the text is none of moed-pack's of this version.
absl::StatusOr<PlannedModel> ModelOfDryRun(const std::string& path, std::string_view json);

}  // namespace moed
