// The table of weight formats. Includes nothing of other modules, so that the kernels can be tested alone on another processor.
#include <iterator>

#include "core/quant/codec.h"
#include "core/quant/format.h"

namespace moed {
namespace {

using quant::kLargestFloat16;

// The largest weight: a block's scale must fit float16, and where the format divides the range by its number of levels, so much
// larger may weights be.
constexpr Format kFormats[] = {
    {FormatId::kF32, "f32", 1024, 0, 0x1.fffffep127f, quant::kF32Codec},
    {FormatId::kF16, "f16", 512, 0, kLargestFloat16, quant::kF16Codec},
    {FormatId::kBF16, "bf16", 512, 0, 0x1.fep127f, quant::kBF16Codec},
    {FormatId::kQ8, "q8", 272, 16, 127 * kLargestFloat16, quant::kQ8Codec},
    {FormatId::kQ4, "q4", 144, 16, 8 * kLargestFloat16, quant::kQ4Codec},
    {FormatId::kQ2, "q2", 96, 32, kLargestFloat16, quant::kQ2Codec},
    {FormatId::kQ4A, "q4a", 160, 32, kLargestFloat16, quant::kQ4ACodec},
    {FormatId::kQ3, "q3", 128, 32, kLargestFloat16, quant::kQ3Codec},
};

constexpr bool InOrderOfId() {
  for (size_t i = 0; i < std::size(kFormats); ++i) {
    if (kFormats[i].id != static_cast<FormatId>(i)) return false;
  }
  return true;
}
static_assert(std::size(kFormats) == kFormatCount, "every format of FormatId has a row");
static_assert(InOrderOfId(), "rows stand in the order of FormatId");

}  // namespace

std::span<const Format> Formats() { return kFormats; }

}  // namespace moed
