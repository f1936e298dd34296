// Stores that were packed on the way to a conversation: one of each model and way of packing, in a folder of its own.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/commands/model_source.h"
#include "server/commands/stop_signals.h"
#include "server/startup/config.h"

namespace moed {

// $MOED_CACHE_DIR, else moed in $XDG_CACHE_HOME, else in ~/.cache; made where it is absent. Errors name it and the variable.
absl::StatusOr<std::string> CacheFolder(const Environment& environment);

// Where the store of `source`, packed with these flags of moed-pack, is or will be: NAME-KEY-STATE.moed. The key says path and
// flags, the state what the files were like.
struct CachedStore {
  std::string path;
  std::string same_key;  // what the names of its former states begin with

  std::string lock_path() const { return same_key + "lock"; }
};
CachedStore PlaceInCache(const std::string& folder, const ModelSource& source, const std::vector<std::string>& pack_flags);

// The path of a whole store of `source`, which moed-pack makes unless it is there; it says on standard error what it does. What
// former states of the source became is removed first. Whoever packs the same at the same time is waited for. CANCELLED: a stop
// signal came; the same call goes on where this one was.
absl::StatusOr<std::string> PackOnce(const std::string& folder, const ModelSource& source,
                                     const std::vector<std::string>& pack_flags, StopSignals& signals);

}  // namespace moed
