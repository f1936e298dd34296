// What of a device's own memory is planned with.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/kernels/backend_memory.h"

namespace moed {

// `told`: --device-budget. `device`: BackendMemory::working_bytes of `backend`. Without being told, what is free less a
// sixteenth, for others and for the driver's graphs; nothing where it has no memory of its own.
// INVALID_ARGUMENT for a budget of such a backend, and for more than is free less that sixteenth, or less 256 MiB where that is
// the smaller.
absl::StatusOr<std::optional<uint64_t>> ChooseDeviceBudget(std::optional<uint64_t> told, const WorkingBytes& device,
                                                           std::string_view backend);

}  // namespace moed
