// A segment of a coded record as it is read into a slot: two bytes say its format and how many blocks it has, the others are what
// the file has of it. Whatever they are, nothing outside its memory is touched.
#include <vector>

#include "core/base/buffer.h"
#include "core/quant/format.h"
#include "core/store/coding.h"
#include "core/store/description.h"
#include "tests/fuzz/foreign_bytes.h"

using namespace moed;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const Format& format = Formats()[data[0] % Formats().size()];
  const std::span coded = std::as_bytes(std::span(data, size)).subspan(2);
  const size_t bytes = (1 + data[1] * size_t{8}) * format.panel_block_bytes;
  if (coded.size() > bytes) return 0;
  SegmentDecoder decoder;
  std::vector<std::byte> slot(RoundUp(bytes, kStoreAlignment));
  const auto read = std::span(slot).last(RoundUp(coded.size(), kStoreAlignment)).first(coded.size());
  std::ranges::copy(coded, read.begin());
  const bool in_place = decoder.Decode(format.id, read, std::span(slot).first(bytes)).ok();
  std::vector<std::byte> apart(bytes);
  if (!decoder.Decode(format.id, coded, apart).ok()) {
    MOED_CHECK(!in_place);
  } else {
    MOED_CHECK(!in_place || std::ranges::equal(apart, std::span(slot).first(bytes)));
  }
  return 0;
}
