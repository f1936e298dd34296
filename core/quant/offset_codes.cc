// q2, q3, q4a: weight = d * q + m, one float16 scale and one float16 offset a row of a block.
#include "core/quant/block_layouts.h"
#include "core/quant/fed_back.h"
#include "core/quant/line_fit.h"

namespace moed::quant {
namespace {

template <class Planes>
constexpr float kLargest = (1 << Planes::kBits) - 1;

// Four rows at a time: `choose(columns, first_row)` gives their lines.
template <class Planes, class Choose>
void Encode(const float* weights, std::byte* out, const Choose& choose) {
  for (int first_row = 0; first_row < kPanelRows; first_row += kRowsTogether) {
    const FourRowsColumns columns = Transpose(weights, first_row);
    const Lines lines = choose(columns, first_row);
    const FourRows inverse = InverseOrZero(lines.scale);
    RowBlock rows[kRowsTogether];
    for (int column = 0; column < kBlockColumns; ++column) {
      const FourRows code = CodeOn(lines, inverse, columns.at[column], kLargest<Planes>);
      for (int lane = 0; lane < kRowsTogether; ++lane) rows[lane].codes[column] = static_cast<uint8_t>(code[lane]);
    }
    for (int lane = 0; lane < kRowsTogether; ++lane) {
      rows[lane].scale = FloatToFloat16(lines.scale[lane]);
      rows[lane].offset = FloatToFloat16(lines.offset[lane]);
      Packed<LineHeader, Planes>::Put(rows[lane], first_row + lane, out);
    }
  }
}

template <class Planes, Lines (*kLines)(const FourRowsColumns&, float)>
void EncodeBlock(const float* weights, std::byte* out) {
  Encode<Planes>(weights, out, [](const FourRowsColumns& columns, int) { return kLines(columns, kLargest<Planes>); });
}

template <class Planes>
void EncodeChannel(const float* weights, const float* row_largest, std::byte* out) {
  Encode<Planes>(weights, out, [row_largest](const FourRowsColumns&, int first_row) {
    return SymmetricLines(Load<FourRows>(reinterpret_cast<const std::byte*>(row_largest + first_row)), kLargest<Planes>);
  });
}

template <FormatId kFormat, class Planes>
constexpr Codec kCodec = {.decode_row = DecodeBlockRow<BlockLayout<kFormat>>,
                          .nearest = EncodeBlock<Planes, LeastSquaresLines>,
                          .half_quadratic = EncodeBlock<Planes, HalfQuadraticLines>,
                          .channel = EncodeChannel<Planes>,
                          .fed_back = EncodeFedBack<HalfUnits<(1 << Planes::kBits) - 1>, BlockLayout<kFormat>>};

}  // namespace

const Codec kQ2Codec = kCodec<FormatId::kQ2, Planes<2>>;
const Codec kQ3Codec = kCodec<FormatId::kQ3, Planes<2, 1>>;
const Codec kQ4ACodec = kCodec<FormatId::kQ4A, Planes<4>>;

}  // namespace moed::quant
