#include "core/store/checksum.h"

#define XXH_STATIC_LINKING_ONLY  // the state's size
#include <xxhash.h>

namespace moed {

struct ChecksumStream::State {
  XXH3_state_t xxh;
};

uint64_t Checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }
uint64_t Checksum(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

ChecksumStream::ChecksumStream() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh); }
ChecksumStream::~ChecksumStream() = default;
ChecksumStream::ChecksumStream(ChecksumStream&&) noexcept = default;
ChecksumStream& ChecksumStream::operator=(ChecksumStream&&) noexcept = default;

void ChecksumStream::Update(std::span<const std::byte> bytes) { XXH3_64bits_update(&state_->xxh, bytes.data(), bytes.size()); }
uint64_t ChecksumStream::Value() const { return XXH3_64bits_digest(&state_->xxh); }

}  // namespace moed
