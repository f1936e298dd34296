// q2s, q2p: weight = d * level + d * n / 16, d of a byte and n an int8.
#include "core/quant/block_layouts.h"
#include "core/quant/fed_back.h"

namespace moed::quant {
namespace {

template <FormatId kFormat, class Units>
constexpr Codec kCodec = {.decode_row = DecodeBlockRow<BlockLayout<kFormat>>,
                          .nearest = EncodeSnapped<Units, BlockLayout<kFormat>>,
                          .fed_back = EncodeFedBack<Units, BlockLayout<kFormat>>};

}  // namespace

const Codec kQ2SCodec = kCodec<FormatId::kQ2S, Q2SUnits>;
const Codec kQ2PCodec = kCodec<FormatId::kQ2P, Q2PUnits>;

}  // namespace moed::quant
