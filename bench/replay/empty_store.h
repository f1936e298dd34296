// A store of a given shape whose experts are zeros: what the expert cache needs where nothing is computed.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "core/expert/routing_trace.h"
#include "core/store/store.h"

namespace moed {

// Its file is temporary and already unlinked.
absl::StatusOr<std::unique_ptr<StoreReader>> MakeEmptyStore(const RoutingShape& shape);

}  // namespace moed
