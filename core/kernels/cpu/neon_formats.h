// What each weight format is to the products of 64-bit ARM: a row for each.
#pragma once

#include "core/kernels/cpu/neon_blocks.h"
#include "core/kernels/cpu/neon_floats.h"

namespace moed::neon {
namespace {

template <FormatId kFormat>
struct NeonFormat;
template <>
struct NeonFormat<FormatId::kF32> : F32 {};
template <>
struct NeonFormat<FormatId::kF16> : F16 {};
template <>
struct NeonFormat<FormatId::kBF16> : BF16 {};
template <>
struct NeonFormat<FormatId::kQ8> : Block<CodesOf8Bits, HalfScales<false>> {};
template <>
struct NeonFormat<FormatId::kQ4> : Block<CodesOf4Bits<8>, HalfScales<false>> {};
template <>
struct NeonFormat<FormatId::kQ2> : Block<CodesOf2Bits, HalfScales<true>> {};
template <>
struct NeonFormat<FormatId::kQ4A> : Block<CodesOf4Bits<0>, HalfScales<true>> {};
template <>
struct NeonFormat<FormatId::kQ3> : Block<MoreBits<CodesOf2Bits, 1, 2>, HalfScales<true>> {};
template <>
struct NeonFormat<FormatId::kQ5_0> : Block<MoreBits<CodesOf4Bits<0>, 1, 4, 16>, HalfScales<false>> {};
template <>
struct NeonFormat<FormatId::kQ5_1> : Block<MoreBits<CodesOf4Bits<0>, 1, 4>, HalfScales<true>> {};
template <>
struct NeonFormat<FormatId::kQ2K> : Block<CodesOf2Bits, LinesOfParts<2>> {};
template <>
struct NeonFormat<FormatId::kQ3K> : Block<MoreBits<CodesOf2Bits, 1, 2, 4>, ScalesOfParts<SixBitNumbers, 2>> {};
template <>
struct NeonFormat<FormatId::kQ4K> : Block<CodesOf4Bits<0>, LinesOfParts<1>> {};
template <>
struct NeonFormat<FormatId::kQ5K> : Block<MoreBits<CodesOf4Bits<0>, 1, 4>, LinesOfParts<1>> {};
template <>
struct NeonFormat<FormatId::kQ6K> : Block<MoreBits<CodesOf4Bits<0>, 2, 4, 32>, ScalesOfParts<SignedNumbers, 2>> {};
template <>
struct NeonFormat<FormatId::kIq4Nl> : Block<TableCodes<kIq4Levels>, HalfScales<false>> {};
template <>
struct NeonFormat<FormatId::kIq4Xs> : Block<TableCodes<kIq4Levels>, ScalesOfParts<SixBitNumbers, 1>> {};
template <>
struct NeonFormat<FormatId::kIq3S> : Block<GridCodes, ScalesOfParts<OddNumbers, 1>> {};
template <>
struct NeonFormat<FormatId::kMxfp4> : Block<TableCodes<kMxfp4Levels>, ExponentScales> {};
template <>
struct NeonFormat<FormatId::kQ4Z> : Block<CodesOf4Bits<0>, ZeroPoints<1>> {};
template <>
struct NeonFormat<FormatId::kQ4Z128> : Block<CodesOf4Bits<0>, ZeroPoints<4>> {};
template <>
struct NeonFormat<FormatId::kFp8> : Fp8 {};
template <>
struct NeonFormat<FormatId::kQ2S> : Block<CodesOf2Bits, ByteLines> {};
template <>
struct NeonFormat<FormatId::kQ2P> : Block<PairCodes, ByteLines> {};
template <>
struct NeonFormat<FormatId::kNvfp4> : Block<TableCodes<kMxfp4Levels>, FactorScales> {};

}  // namespace
}  // namespace moed::neon
