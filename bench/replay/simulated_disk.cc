#include "bench/replay/simulated_disk.h"

#include <cmath>
#include <utility>

#include "core/base/check.h"

namespace moed {

void SimulatedDisk::Submit(ReadOp op) {
  MOED_CHECK(!reading_);
  reading_ = true;
  ends_nanos_ = now_nanos_ + std::llround(static_cast<double>(op.destination.size()) / bytes_per_second_ * 1e9);
  op_ = std::move(op);
}

void SimulatedDisk::Advance(int64_t nanos) {
  const int64_t until = now_nanos_ + nanos;
  while (reading_ && ends_nanos_ <= until) EndRead();
  now_nanos_ = until;
}

void SimulatedDisk::AwaitRead() {
  MOED_CHECK(reading_);
  EndRead();
}

// Whoever is told may submit the next read at once.
void SimulatedDisk::EndRead() {
  now_nanos_ = ends_nanos_;
  reading_ = false;
  const ReadOp op = std::exchange(op_, ReadOp());
  op.done(absl::OkStatus());
}

}  // namespace moed
