#include "server/wire/refused_lines.h"

#include <utility>

namespace moed {

std::optional<uint64_t> RefusedLines::Take() {
  const int64_t second = clock_.NowNanos() / 1'000'000'000;
  absl::MutexLock lock(&mutex_);
  if (std::exchange(second_, second) != second) lines_ = 0;
  if (lines_ == kLinesASecond) {
    ++left_out_;
    return std::nullopt;
  }
  ++lines_;
  return std::exchange(left_out_, 0);
}

}  // namespace moed
