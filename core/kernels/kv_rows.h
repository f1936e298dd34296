// How keys and values are kept: head_dim numbers for every kv head and position.
//   f32  as they are
//   f16  rounded to nearest even, the largest half instead of infinity
//   q8   head_dim int8 codes, then a float16 scale for every 32 of them: scale = max|x| / 127, code = x / scale, both rounded to
//        nearest even (8.5 bits a number); an infinity or NaN makes its 32 numbers NaN
// Every format is widened to float32 exactly.
//
// A page holds `page_tokens` positions of one layer: the keys of each kv head, then the values of each.
//   values of a head  (page_tokens) rows: the elements of a position lie together
//   keys of a head    the same rows transposed, (elements, page_tokens): one element of all positions lies together, so that a
//                     vector holds one dimension of several keys. For q8 codes (head_dim, page_tokens), then scales
//                     (head_dim / 32 rounded up, page_tokens)
// A page of latent attention holds rows alone, one for each position: the latent as a row, behind it the rotated key as a row.
// Pure, thread-safe; declarations only (see kernel_table.h).
#pragma once

#include <stdint.h>

namespace moed {

enum class KvFormat : uint8_t { kF32 = 0, kF16 = 1, kQ8 = 2 };
inline constexpr int kKvFormatCount = 3;
inline constexpr const char* kKvFormatNames[kKvFormatCount] = {"f32", "f16", "q8"};
inline constexpr int kKvScaleColumns = 32;
inline constexpr int kMostHeadDim = 1024;
inline constexpr int kKvPageTokens = 64;  // the most; 16 and 32 are the others

// What one position of one kv head takes, as key or as value. A head has page_tokens times as many bytes of keys in a page, and
// as many of values.
int64_t KvRowBytes(KvFormat format, int head_dim);

// What one position takes in a page of latent attention.
int64_t LatentRowBytes(KvFormat format, int rank, int rotary_dims);

// `row` has KvRowBytes bytes.
void StoreKvRow(KvFormat format, const float* numbers, int head_dim, void* row);
void WidenKvRow(KvFormat format, const void* row, int head_dim, float* numbers);

// A row to and from position `slot` of a head's keys in a page.
void PlaceKvKey(KvFormat format, const void* row, int head_dim, int page_tokens, int slot, void* keys);
void TakeKvKey(KvFormat format, const void* keys, int head_dim, int page_tokens, int slot, void* row);

}  // namespace moed
