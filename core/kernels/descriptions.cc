#include "core/kernels/descriptions.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace moed {
namespace {

constexpr size_t kFirstBytes = 256 << 10;

}  // namespace

std::byte* Descriptions::TakeBytes(size_t bytes) {
  bytes = RoundUp(std::max<size_t>(bytes, 1), kAlignment);
  if (buffers_.empty() || buffers_.back().size() - used_ < bytes) {
    const size_t before = buffers_.empty() ? kFirstBytes / 2 : buffers_.back().size();
    const size_t wanted = std::max(2 * before, bytes);
    auto buffer = runtime_.Allocate(wanted, MemoryKind::kPinned);
    if (!buffer.ok()) {
      status_.Update(buffer.status());
      buffer = Buffer::Allocate(wanted);
      MOED_CHECK(buffer.ok());
    }
    buffers_.push_back(*std::move(buffer));
    used_ = 0;
  }
  return buffers_.back().data() + std::exchange(used_, used_ + bytes);
}

// Keeps the last buffer, which is the largest, unless it may be the host's.
void Descriptions::Clear() {
  if (!std::exchange(status_, absl::OkStatus()).ok()) buffers_.clear();
  if (buffers_.size() > 1) buffers_.erase(buffers_.begin(), buffers_.end() - 1);
  used_ = 0;
}

}  // namespace moed
