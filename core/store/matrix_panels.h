// A matrix of the trunk that stays in the file, read a panel of 8 rows (quant/format.h) at a time. The trunk is read whole once,
// and checked; from then on every panel has to be what it was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "core/store/checksum.h"
#include "core/store/description.h"

namespace moed {

class ReadBackend;
class StoreReader;

// Bytes of the trunk, from `begin` to before `end`.
struct TrunkRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t bytes() const { return end - begin; }
};

struct WantedPanel {
  int panel = 0;
  std::span<std::byte> pages;        // LandingBytes, page-aligned: what is read of the file
  std::span<const std::byte> bytes;  // out: the panel, in `pages`
  absl::Status status;               // out: DATA_LOSS that names the rows; Damage (damage.h): they were read
};

// Note from one thread, before anything is read; then Read from one thread.
class MatrixPanels {
 public:
  // Whole pages of the trunk that hold nothing but the matrix.
  static TrunkRange PagesOf(const TensorInfo& matrix);
  static size_t PanelBytes(const TensorInfo& matrix);
  // Whole pages around a panel, wherever it begins in one.
  static size_t LandingBytes(const TensorInfo& matrix);
  // Of the checksums that it keeps.
  static uint64_t MemoryBytes(const TensorInfo& matrix);

  // All outlive it; `matrix` is one of the store's, whose file `reads` has open.
  MatrixPanels(const StoreReader& store, const TensorInfo& matrix, ReadBackend& reads);

  // The trunk's bytes from its beginning on, piece by piece: it takes the checksums of its panels from them.
  void Note(uint64_t offset, std::span<const std::byte> bytes);
  // All at once; returns when all have come or failed.
  void Read(std::span<WantedPanel> wanted);

 private:
  void Check(WantedPanel& wanted) const;

  const StoreReader& store_;
  const TensorInfo& matrix_;
  ReadBackend& reads_;
  const size_t panel_bytes_;
  std::vector<uint64_t> checksums_;  // of the panels that were noted whole
  ChecksumStream noted_;             // of the next one, as far as it was noted
};

}  // namespace moed
