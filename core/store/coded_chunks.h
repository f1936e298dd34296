// Private to core/store: a coded segment chunk by chunk, each of which is a coded segment of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "core/quant/format_id.h"

namespace moed {

// Of all chunks but the last of a segment of so many bytes, before coding.
size_t BytesOfChunks(FormatId format, uint64_t segment_bytes);
// Of the first chunk of `coded`. DATA_LOSS: it has no whole one.
absl::StatusOr<size_t> CodedBytesOfFirst(FormatId format, std::span<const std::byte> coded);

}  // namespace moed
