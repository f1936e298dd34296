// Where keys and values of idle sessions go on disk, as the daemon was told.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/engine/kv_spill.h"
#include "core/model/kv_pool.h"
#include "core/model/spec.h"

namespace moed {

// A file of its own in `folder`; what goes wrong later is logged. Null where `folder` is "". Errors name --kv-spill: a model
// without sessions, keys and values in memory of a device, a folder that cannot be used, a budget that holds no page.
absl::StatusOr<std::unique_ptr<KvSpill>> OpenKvSpill(const std::string& folder, const KvSpillSizes& sizes, const ModelSpec& spec,
                                                     KvPool& kv, const Clock& clock);

}  // namespace moed
