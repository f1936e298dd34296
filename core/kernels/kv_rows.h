// How keys and values are kept: a row of head_dim numbers for every kv head and position.
//   f32  as they are
//   f16  rounded to nearest even, the largest half instead of infinity
//   q8   head_dim int8 codes, then a float16 scale for every 32 of them: scale = max|x| / 127, code = x / scale, both rounded to
//        nearest even (8.5 bits a number); an infinity or NaN makes its 32 numbers NaN
// Every format is widened to float32 exactly. Pure, thread-safe; declarations only (see kernel_table.h).
#pragma once

#include <stdint.h>

namespace moed {

enum class KvFormat : uint8_t { kF32 = 0, kF16 = 1, kQ8 = 2 };
inline constexpr int kKvFormatCount = 3;
inline constexpr const char* kKvFormatNames[kKvFormatCount] = {"f32", "f16", "q8"};
inline constexpr int kKvScaleColumns = 32;
inline constexpr int kMostHeadDim = 1024;

// A row in elements of its format (float, uint16_t, bytes), and in bytes.
int64_t KvRowElements(KvFormat format, int head_dim);
int64_t KvRowBytes(KvFormat format, int head_dim);

void StoreKvRow(KvFormat format, const float* numbers, int head_dim, void* row);  // `row` has KvRowBytes bytes
void WidenKvRow(KvFormat format, const void* row, int head_dim, float* numbers);

}  // namespace moed
