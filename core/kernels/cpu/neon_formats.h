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
struct NeonFormat<FormatId::kQ8> : Q8 {};
template <>
struct NeonFormat<FormatId::kQ4> : Q4 {};
template <>
struct NeonFormat<FormatId::kQ2> : Q2 {};
template <>
struct NeonFormat<FormatId::kQ4A> : Q4A {};
template <>
struct NeonFormat<FormatId::kQ3> : Q3 {};

}  // namespace
}  // namespace moed::neon
