// Reads that are counted, and given up in the middle: a decorator of any ReadBackend.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "core/io/read_backend.h"

namespace moed {

// `on_read`(bytes of a read that was answered) runs on the device's threads, one at a time. Once it is not OK, every read that
// has not reached the device ends with what it returned. `device` outlives the decorator.
std::unique_ptr<ReadBackend> MakeMeteredBackend(ReadBackend& device, std::function<absl::Status(uint64_t bytes)> on_read);

}  // namespace moed
