#include "core/store/matrix_panels.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/quant/format.h"
#include "core/store/awaited_reads.h"
#include "core/store/damage.h"
#include "core/store/store.h"

namespace moed {

TrunkRange MatrixPanels::PagesOf(const TensorInfo& matrix) {
  const uint64_t begin = RoundUp(matrix.offset, kPageBytes), end = (matrix.offset + matrix.bytes) / kPageBytes * kPageBytes;
  return {begin, std::max(begin, end)};
}

size_t MatrixPanels::PanelBytes(const TensorInfo& matrix) { return PackedBytes(matrix.format, kPanelRows, matrix.cols); }

size_t MatrixPanels::LandingBytes(const TensorInfo& matrix) { return RoundUp(PanelBytes(matrix), kPageBytes) + kPageBytes; }

uint64_t MatrixPanels::MemoryBytes(const TensorInfo& matrix) {
  return static_cast<uint64_t>(Panels(matrix.rows)) * sizeof(uint64_t);
}

MatrixPanels::MatrixPanels(const StoreReader& store, const TensorInfo& matrix, ReadBackend& reads)
    : store_(store), matrix_(matrix), reads_(reads), panel_bytes_(PanelBytes(matrix)) {
  checksums_.reserve(static_cast<size_t>(Panels(matrix.rows)));
}

void MatrixPanels::Note(uint64_t offset, std::span<const std::byte> bytes) {
  const uint64_t begin = std::max(offset, matrix_.offset), end = std::min(offset + bytes.size(), matrix_.offset + matrix_.bytes);
  if (begin >= end) return;
  bytes = bytes.subspan(begin - offset, end - begin);
  for (uint64_t done = begin - matrix_.offset; !bytes.empty();) {
    const uint64_t left = (checksums_.size() + 1) * panel_bytes_ - done;
    const auto some = bytes.first(std::min<uint64_t>(left, bytes.size()));
    noted_.Update(some);
    if (some.size() == left) checksums_.push_back(std::exchange(noted_, ChecksumStream()).Value());
    bytes = bytes.subspan(some.size());
    done += some.size();
  }
}

void MatrixPanels::Read(std::span<WantedPanel> wanted) {
  AwaitedReads reads(reads_);
  for (WantedPanel& one : wanted) {
    const uint64_t offset = matrix_.offset + static_cast<uint64_t>(one.panel) * panel_bytes_, before = offset % kPageBytes;
    one.bytes = one.pages.subspan(before, panel_bytes_);
    one.status = absl::OkStatus();
    const auto pages = one.pages.first(RoundUp(before + panel_bytes_, kPageBytes));
    reads.Submit(store_.layout().trunk_offset() + offset - before, pages, one.status);
  }
  reads.Wait();
  for (WantedPanel& one : wanted) Check(one);
}

void MatrixPanels::Check(WantedPanel& wanted) const {
  if (absl::IsDataLoss(wanted.status)) return;
  if (wanted.status.ok() && Checksum(wanted.bytes) == checksums_[static_cast<size_t>(wanted.panel)]) return;
  const int first_row = wanted.panel * kPanelRows;
  const std::string rows = StrCat("rows ", first_row, " to ", std::min(first_row + kPanelRows, matrix_.rows) - 1);
  if (wanted.status.ok()) {
    wanted.status = Damage(store_.path(), ": trunk tensor \"", matrix_.name, "\" has changed since it was read first, in ", rows);
  } else {  // whatever the device called it: these bytes of the store cannot be had
    wanted.status = DataLoss("reading ", rows, " of trunk tensor \"", matrix_.name, "\": ", wanted.status.message());
  }
}

}  // namespace moed
