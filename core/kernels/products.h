// How an instruction set fills its table of products. It gives one template, Set::MatMul<format>, which stands on what the format
// is to its vectors: reference.cc's, cpu/vector_formats.h's, cpu/neon_formats.h's row of that format. The table is made of the
// enumeration, so a format without such a row does not compile and no entry can be null.
#pragma once

#include <utility>

#include "core/kernels/kernel_table.h"

namespace moed {
namespace {

template <class Set, int... kIds>
consteval Products MakeProducts(std::integer_sequence<int, kIds...>) {
  return {{Set::template MatMul<static_cast<FormatId>(kIds)>...}};
}
template <class Set>
constexpr Products kProducts = MakeProducts<Set>(std::make_integer_sequence<int, kFormatCount>());

}  // namespace
}  // namespace moed
