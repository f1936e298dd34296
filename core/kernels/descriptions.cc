#include "core/kernels/descriptions.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr size_t kFirstBytes = 256 << 10;

}  // namespace

Described<std::byte> Descriptions::TakeBytes(size_t bytes) {
  bytes = RoundUp(std::max<size_t>(bytes, 1), kAlignment);
  if (pieces_.empty() || pieces_.back().host.size() - pieces_.back().used < bytes) {
    const size_t before = pieces_.empty() ? kFirstBytes / 2 : pieces_.back().host.size();
    const size_t wanted = std::max(2 * before, bytes);
    Piece piece;
    if (const absl::Status failed = Allocate(wanted, piece); !failed.ok()) {
      status_.Update(failed);
      absl::StatusOr<Buffer> of_host = Buffer::Allocate(wanted);
      MOED_CHECK(of_host.ok());
      piece = {.host = *std::move(of_host)};
    }
    pieces_.push_back(std::move(piece));
  }
  Piece& piece = pieces_.back();
  const size_t first = std::exchange(piece.used, piece.used + bytes);
  std::byte* const host = piece.host.data() + first;
  return {host, piece.device.size() == 0 ? host : piece.device.data() + first};
}

absl::Status Descriptions::Allocate(size_t bytes, Piece& piece) {
  MOED_ASSIGN_OR_RETURN(piece.host, runtime_.Allocate(bytes, MemoryKind::kPinned));
  if (runtime_.attributes().unified_memory) return absl::OkStatus();
  MOED_ASSIGN_OR_RETURN(piece.device, runtime_.Allocate(bytes, MemoryKind::kDevice));
  return absl::OkStatus();
}

void Descriptions::Flush(DeviceStream& stream) {
  for (Piece& piece : pieces_) {
    const size_t first = std::exchange(piece.flushed, piece.used);
    if (piece.device.size() == 0 || first == piece.used) continue;
    stream.Copy(piece.device.data() + first, piece.host.data() + first, piece.used - first);
  }
}

// Keeps the last piece, which is the largest, unless it may be the host's.
void Descriptions::Clear() {
  if (!std::exchange(status_, absl::OkStatus()).ok()) pieces_.clear();
  if (pieces_.size() > 1) pieces_.erase(pieces_.begin(), pieces_.end() - 1);
  if (!pieces_.empty()) pieces_.back().used = pieces_.back().flushed = 0;
}

}  // namespace moed
