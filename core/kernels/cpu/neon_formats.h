// What each weight format is to the products of 64-bit ARM: a row for each.
#pragma once

#include "core/kernels/cpu/neon_blocks.h"
#include "core/kernels/cpu/neon_floats.h"
#include "core/kernels/products.h"

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
struct NeonFormat<FormatId::kQ8> : Q8 {};
template <>
struct NeonFormat<FormatId::kQ4> : Q4 {};
template <>
struct NeonFormat<FormatId::kQ2> : Q2 {};
template <>
struct NeonFormat<FormatId::kQ4A> : Q4A {};
template <>
struct NeonFormat<FormatId::kQ3> : Q3 {};
template <>
struct NeonFormat<FormatId::kQ5_0> : ScalarRow<FormatId::kQ5_0> {};
template <>
struct NeonFormat<FormatId::kQ5_1> : ScalarRow<FormatId::kQ5_1> {};
template <>
struct NeonFormat<FormatId::kQ2K> : ScalarRow<FormatId::kQ2K> {};
template <>
struct NeonFormat<FormatId::kQ3K> : ScalarRow<FormatId::kQ3K> {};
template <>
struct NeonFormat<FormatId::kQ4K> : ScalarRow<FormatId::kQ4K> {};
template <>
struct NeonFormat<FormatId::kQ5K> : ScalarRow<FormatId::kQ5K> {};
template <>
struct NeonFormat<FormatId::kQ6K> : ScalarRow<FormatId::kQ6K> {};
template <>
struct NeonFormat<FormatId::kIq4Nl> : ScalarRow<FormatId::kIq4Nl> {};
template <>
struct NeonFormat<FormatId::kIq4Xs> : ScalarRow<FormatId::kIq4Xs> {};
template <>
struct NeonFormat<FormatId::kIq3S> : ScalarRow<FormatId::kIq3S> {};
template <>
struct NeonFormat<FormatId::kMxfp4> : ScalarRow<FormatId::kMxfp4> {};

}  // namespace
}  // namespace moed::neon
