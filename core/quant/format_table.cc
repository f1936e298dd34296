// The table of weight formats. Includes nothing of other modules, so that the kernels can be tested alone on another processor.
#include <iterator>

#include "core/quant/block_layouts.h"
#include "core/quant/format.h"
#include "core/quant/fp8.h"

namespace moed {
namespace {

using quant::BlockLayout;
using quant::kLargestFloat16;

// What blocks of checkpoints are kept in: `scale_bytes` of float scales and offsets.
template <FormatId kFormat>
constexpr quant::Codec kKeptCodec = {quant::DecodeBlockRow<BlockLayout<kFormat>>};
template <FormatId kFormat>
constexpr Format Kept(std::string_view name, size_t scale_bytes) {
  using Layout = BlockLayout<kFormat>;
  return {kFormat, name, Layout::kColumns, Layout::kBytes, scale_bytes, 0, kKeptCodec<kFormat>};
}

// The largest weight: a block's scale must fit float16, and where the format divides the range by its number of levels, so much
// larger may weights be.
constexpr Format kFormats[] = {
    {FormatId::kF32, "f32", 32, 1024, 0, 0x1.fffffep127f, quant::kF32Codec},
    {FormatId::kF16, "f16", 32, 512, 0, kLargestFloat16, quant::kF16Codec},
    {FormatId::kBF16, "bf16", 32, 512, 0, 0x1.fep127f, quant::kBF16Codec},
    {FormatId::kQ8, "q8", 32, 272, 16, 127 * kLargestFloat16, quant::kQ8Codec},
    {FormatId::kQ4, "q4", 32, 144, 16, 8 * kLargestFloat16, quant::kQ4Codec},
    {FormatId::kQ2, "q2", 32, 96, 32, kLargestFloat16, quant::kQ2Codec},
    {FormatId::kQ4A, "q4a", 32, 160, 32, kLargestFloat16, quant::kQ4ACodec},
    {FormatId::kQ3, "q3", 32, 128, 32, kLargestFloat16, quant::kQ3Codec},
    Kept<FormatId::kQ5_0>("q5_0", 16),
    Kept<FormatId::kQ5_1>("q5_1", 32),
    Kept<FormatId::kQ2K>("q2_k", 32),
    Kept<FormatId::kQ3K>("q3_k", 16),
    Kept<FormatId::kQ4K>("q4_k", 32),
    Kept<FormatId::kQ5K>("q5_k", 32),
    Kept<FormatId::kQ6K>("q6_k", 16),
    Kept<FormatId::kIq4Nl>("iq4_nl", 16),
    Kept<FormatId::kIq4Xs>("iq4_xs", 16),
    Kept<FormatId::kIq3S>("iq3_s", 16),
    Kept<FormatId::kMxfp4>("mxfp4", 8),
    Kept<FormatId::kQ4Z>("q4z", 16),
    Kept<FormatId::kQ4Z128>("q4z_128", 16),
    {FormatId::kFp8, "fp8", quant::kFp8BlockColumns, quant::kFp8PanelBlockBytes, 0, 0, quant::kFp8Codec},
    {FormatId::kQ2S, "q2s", 32, 80, 8, quant::kLargestByteScale, quant::kQ2SCodec},
    {FormatId::kQ2P, "q2p", 32, 96, 8, quant::kLargestByteScale, quant::kQ2PCodec},
    Kept<FormatId::kNvfp4>("nvfp4", 40),
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
