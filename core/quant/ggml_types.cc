#include "core/quant/ggml_types.h"

#include <algorithm>
#include <iterator>

#include "core/quant/block_rows.h"
#include "core/quant/ggml_blocks.h"

namespace moed {
namespace {

constexpr GgmlType kTypes[] = {
    {quant::kF32Numbers, 0},
    {quant::kF16Numbers, 1},
    {quant::BlocksOf<FormatId::kQ4, 18, quant::UnpackQ4_0>("Q4_0"), 2},
    {quant::BlocksOf<FormatId::kQ4A, 20, quant::UnpackQ4_1>("Q4_1"), 3},
    {quant::BlocksOf<FormatId::kQ5_0, 22, quant::UnpackQ5_0>("Q5_0"), 6},
    {quant::BlocksOf<FormatId::kQ5_1, 24, quant::UnpackQ5_1>("Q5_1"), 7},
    {quant::BlocksOf<FormatId::kQ8, 34, quant::UnpackQ8_0>("Q8_0"), 8},
    {quant::BlocksOf<FormatId::kQ2K, 84, quant::UnpackQ2K>("Q2_K"), 10},
    {quant::BlocksOf<FormatId::kQ3K, 110, quant::UnpackQ3K>("Q3_K"), 11},
    {quant::BlocksOf<FormatId::kQ4K, 144, quant::UnpackQ4K>("Q4_K"), 12},
    {quant::BlocksOf<FormatId::kQ5K, 176, quant::UnpackQ5K>("Q5_K"), 13},
    {quant::BlocksOf<FormatId::kQ6K, 210, quant::UnpackQ6K>("Q6_K"), 14},
    {quant::BlocksOf<FormatId::kIq4Nl, 18, quant::UnpackIq4Nl>("IQ4_NL"), 20},
    {quant::BlocksOf<FormatId::kIq3S, 110, quant::UnpackIq3S>("IQ3_S"), 21},
    {quant::BlocksOf<FormatId::kIq4Xs, 136, quant::UnpackIq4Xs>("IQ4_XS"), 23},
    {quant::kBF16Numbers, 30},
    {quant::BlocksOf<FormatId::kMxfp4, 17, quant::UnpackMxfp4>("MXFP4"), 39},
    {quant::BlocksOf<FormatId::kNvfp4, 36, quant::UnpackNvfp4>("NVFP4"), 40},
};

}  // namespace

std::span<const GgmlType> GgmlTypes() { return kTypes; }

const GgmlType* FindGgmlType(uint32_t id) {
  const auto type = std::find_if(std::begin(kTypes), std::end(kTypes), [id](const GgmlType& row) { return row.id == id; });
  return type == std::end(kTypes) ? nullptr : type;
}

}  // namespace moed
