// q2, q3, q4a: weight = d * q + m, one float16 scale and one float16 offset a row of a block.
#include "core/quant/codec.h"
#include "core/quant/line_fit.h"

namespace moed::quant {
namespace {

constexpr int kOffsetsOffset = 2 * kPanelRows;
constexpr int kCodesOffset = 4 * kPanelRows;
constexpr int kVectorBytes = kGroupColumns * kPanelRows;

// kBits bits of every code, in kBits vectors of 32 bytes: those of column 4 s + j are in byte 4 r + j of vector s mod kBits.
template <int kBits>
struct Plane {
  static constexpr int kBytes = kBits * kVectorBytes;
  static constexpr int kMask = (1 << kBits) - 1;
  static constexpr int Byte(int row, int column) {
    return kVectorBytes * (column / kGroupColumns % kBits) + kGroupColumns * row + column % kGroupColumns;
  }
  static constexpr int Shift(int column) { return kBits * (column / kGroupColumns / kBits); }
  static void Put(std::byte* plane, int row, int column, int bits) {
    plane[Byte(row, column)] |= std::byte((bits & kMask) << Shift(column));
  }
  static int Get(const std::byte* plane, int row, int column) {
    return std::to_integer<int>(plane[Byte(row, column)]) >> Shift(column) & kMask;
  }
};

// Planes one behind the other, the low bits first.
template <int... kPlaneBits>
struct Codes {
  static constexpr float kLargest = (1 << (kPlaneBits + ...)) - 1;
  static constexpr int kBytes = (Plane<kPlaneBits>::kBytes + ...);
  static void Put(std::byte* codes, int row, int column, int code) {
    ((Plane<kPlaneBits>::Put(codes, row, column, code), codes += Plane<kPlaneBits>::kBytes, code >>= kPlaneBits), ...);
  }
  static int Get(const std::byte* codes, int row, int column) {
    int code = 0, shift = 0;
    ((code |= Plane<kPlaneBits>::Get(codes, row, column) << shift, codes += Plane<kPlaneBits>::kBytes, shift += kPlaneBits), ...);
    return code;
  }
};
using Q2 = Codes<2>;
using Q3 = Codes<2, 1>;
using Q4A = Codes<4>;

// Four rows at a time: `choose(columns, first_row)` gives their lines.
template <class Format, class Choose>
void Encode(const float* weights, std::byte* out, const Choose& choose) {
  std::memset(out + kCodesOffset, 0, Format::kBytes);
  for (int first_row = 0; first_row < kPanelRows; first_row += kRowsTogether) {
    const FourRowsColumns columns = Transpose(weights, first_row);
    const Lines lines = choose(columns, first_row);
    const FourRows inverse = InverseOrZero(lines.scale);
    for (int lane = 0; lane < kRowsTogether; ++lane) {
      Store(out + 2 * (first_row + lane), FloatToFloat16(lines.scale[lane]));
      Store(out + kOffsetsOffset + 2 * (first_row + lane), FloatToFloat16(lines.offset[lane]));
    }
    for (int column = 0; column < kBlockColumns; ++column) {
      const FourRows code = CodeOn(lines, inverse, columns.at[column], Format::kLargest);
      for (int lane = 0; lane < kRowsTogether; ++lane) {
        Format::Put(out + kCodesOffset, first_row + lane, column, static_cast<int>(code[lane]));
      }
    }
  }
}

template <class Format, Lines (*kLines)(const FourRowsColumns&, float)>
void EncodeBlock(const float* weights, std::byte* out) {
  Encode<Format>(weights, out, [](const FourRowsColumns& columns, int) { return kLines(columns, Format::kLargest); });
}

template <class Format>
void EncodeChannel(const float* weights, const float* row_largest, std::byte* out) {
  Encode<Format>(weights, out, [row_largest](const FourRowsColumns&, int first_row) {
    return SymmetricLines(Load<FourRows>(reinterpret_cast<const std::byte*>(row_largest + first_row)), Format::kLargest);
  });
}

template <class Format>
void DecodeRow(const std::byte* in, int row, float* weights) {
  const float scale = LoadScale(in, row);
  const float offset = LoadScale(in + kOffsetsOffset, row);
  for (int column = 0; column < kBlockColumns; ++column) {
    weights[column] = scale * static_cast<float>(Format::Get(in + kCodesOffset, row, column)) + offset;
  }
}

template <class Format>
constexpr Codec kCodec = {.nearest = EncodeBlock<Format, LeastSquaresLines>,
                          .decode_row = DecodeRow<Format>,
                          .half_quadratic = EncodeBlock<Format, HalfQuadraticLines>,
                          .channel = EncodeChannel<Format>};

}  // namespace

const Codec kQ2Codec = kCodec<Q2>;
const Codec kQ3Codec = kCodec<Q3>;
const Codec kQ4ACodec = kCodec<Q4A>;

}  // namespace moed::quant
