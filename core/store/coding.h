// Lossless coding of an expert's segment (docs/store-format.md, Coded records): fewer bytes from the disk, the same bytes in
// memory. Bytes of one kind (exponents, scales) are put together and each kind is coded by zstd's Huffman coder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "core/quant/format_id.h"

namespace moed {

// Percent of a segment's pages that coding has to save, where nothing is said, or the segment is kept as it is. Less pays on slow
// disks alone.
inline constexpr int kUsualCodingGain = 8;

// `plain`: a segment in `format`, whole panel blocks. Nothing where coding saves less than `least_gain` percent of its pages.
// Else fewer bytes than `plain`, which can be decoded in place.
std::vector<std::byte> EncodeSegment(FormatId format, std::span<const std::byte> plain, int least_gain = kUsualCodingGain);

// Whose memory is reused from segment to segment. One thread at a time.
class SegmentDecoder {
 public:
  static constexpr uint64_t kMemoryBytes = 1 << 20;  // that it takes at most

  SegmentDecoder();
  ~SegmentDecoder();
  SegmentDecoder(const SegmentDecoder&) = delete;
  SegmentDecoder& operator=(const SegmentDecoder&) = delete;

  // What EncodeSegment has made `coded` of: fills `plain`, as many bytes as the segment has. `coded` may lie in the memory of
  // `plain` or behind it, as far back as the segment's pages end. DATA_LOSS: no such bytes, or not decodable in place; `plain`
  // then holds anything.
  absl::Status Decode(FormatId format, std::span<const std::byte> coded, std::span<std::byte> plain);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moed
