// The line weight = scale * code + offset through 32 weights, codes 0..largest_code: ways to choose it, four rows at a time.
#pragma once

#include "core/quant/four_rows.h"

namespace moed::quant {

// Four rows' lines; both parts are float16 values already.
struct Lines {
  FourRows scale;
  FourRows offset;
};

inline FourRows CodeOn(const Lines& lines, FourRows inverse_scale, FourRows weight, float largest_code) {
  return RoundWithin((weight - lines.offset) * inverse_scale, 0, largest_code);
}

// Smallest weight at code 0, greatest at the largest.
Lines RangeLines(const FourRowsColumns& columns, float largest_code);

// Alternating least squares from the range's line on: best line for the codes, codes of that line.
Lines LeastSquaresLines(const FourRowsColumns& columns, float largest_code);

// Half-quadratic quantisation (Badri and Shaji, 2023): the range's scale, and the offset that makes the sum of |error|^p small,
// p < 1, so that a few far weights may stay far. Per step, with x = weight / scale and zero point z = -offset / scale:
//   q = round(x + z);  e = x - (q - z);  s = sign(e) max(0, |e| - |e|^(p-1) / beta);  z = mean(q - (x - s));  beta *= kappa
// In units of the scale, so that a matrix times a constant has the same codes. Of all steps the one of least error is kept, so
// the error is never above that of the range's line.
Lines HalfQuadraticLines(const FourRowsColumns& columns, float largest_code);

// Even steps over -largest..largest.
Lines SymmetricLines(FourRows largest, float largest_code);

}  // namespace moed::quant
