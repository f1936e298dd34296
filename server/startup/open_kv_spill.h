// Where keys and values of idle sessions go on disk, as the daemon was told.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/engine/kv_spill.h"
#include "core/model/kv_pool.h"
#include "core/model/spec.h"

namespace moed {

// INVALID_ARGUMENT names --kv-spill where `folder` is not "": a model without sessions.
absl::Status CheckKvSpill(const std::string& folder, const ModelSpec& spec);
// A file of its own in `folder`, of a model that CheckKvSpill takes; what goes wrong later is logged. Null where `folder` is "".
// Errors name --kv-spill: keys and values in memory of a device, a folder that cannot be used, a budget that holds no page.
absl::StatusOr<std::unique_ptr<KvSpill>> OpenKvSpill(const std::string& folder, const KvSpillSizes& sizes, KvPool& kv,
                                                     const Clock& clock);

}  // namespace moed
