// What an instruction set implements: plain functions over plain arguments, each on the calling thread. Every table gives the
// bits of the scalar one (reference.cc). Files compiled for one instruction set include this, so nothing in it has code that is
// shared between them.
#pragma once

#include <stdint.h>

#include "core/kernels/kv_rows.h"
#include "core/kernels/recurrence.h"
#include "core/kernels/swi_glu_clamp.h"
#include "core/quant/format_id.h"

namespace moed {

// One product over a packed matrix; rows of `output` beyond `rows` are never written.
struct MatMulArguments {
  const unsigned char* weights;
  int rows;
  int blocks;  // of 32 columns
  int tokens;
  const float* values;  // (tokens, blocks * 32)
  const int8_t* codes;  // (tokens, blocks * 32)
  const float* scales;  // (tokens, blocks)
  const int32_t* sums;  // (tokens, blocks)
  float* output;        // (tokens, output_stride)
  int64_t output_stride;
};

// One token's activations.
struct PrepareArguments {
  const float* x;  // (cols)
  int cols;
  float* values;  // null: not wanted
  int8_t* codes;  // null: not wanted, and no scales and sums
  float* scales;
  int32_t* sums;
};

// quantize(block of 32 values, codes, scale, sum) for every block. Static: each file of kernels is compiled for other
// instructions, and the linker would keep one of equal names.
template <class Quantize>
static inline void PrepareBlocks(const PrepareArguments& a, const Quantize& quantize) {
  constexpr int kColumns = 32;
  for (int first = 0, b = 0; first < a.cols; first += kColumns, ++b) {
    const float* block = a.x + first;
    float padded[kColumns] = {};
    if (first + kColumns > a.cols) {
      for (int i = 0; first + i < a.cols; ++i) padded[i] = block[i];
      block = padded;
    }
    if (a.values != nullptr) __builtin_memcpy(a.values + first, block, kColumns * sizeof(float));
    if (a.codes != nullptr) quantize(block, a.codes + first, a.scales + b, a.sums + b);
  }
}

// One token.
struct RopeArguments {
  float* x;  // (heads, head_dim)
  int heads;
  int head_dim;
  float position;
  const float* inv_freq;  // (head_dim / 2)
};

inline constexpr int kAttentionRows = 12;        // of one call, at most
inline constexpr int kAttentionSumTokens = 256;  // positions whose weighted values are added up before they join the others

// Query rows of consecutive tokens of one sequence that share a kv head: row r is head r % heads of token r / heads and attends
// the last `window` of the first length + r / heads positions, or all of them. Pages that no row attends may be null.
struct AttentionArguments {
  const float* query;    // row r at query + r / heads * token_stride + r % heads * head_dim
  float* output;         // the same
  int64_t token_stride;  // in floats
  int heads;             // of a token
  int first_row;
  int rows;                           // 1 to kAttentionRows
  const unsigned char* const* pages;  // see kv_rows.h
  int64_t keys;                       // bytes from a page's begin to the head's keys
  int64_t values;                     // to its values
  int page_tokens;                    // 16, 32 or 64
  int length;                         // of token 0; the next one sees one more where `grows`
  bool grows;
  int first;     // no row sees positions before it
  int window;    // 0: all positions
  int head_dim;  // at most kMostHeadDim
  float scale;
  const float* sinks;  // (heads); null: none
  const float* bias;   // (heads, 2 bias_reach + 1), see PositionBias; null: none
  int bias_reach;
  int position;          // of token 0, counted as the lengths are
  float* scores;         // (rows, score_stride)
  int64_t score_stride;  // a multiple of 16, at least the length of the last row
};

inline constexpr int kLatentRows = 16;     // of one call, at most
inline constexpr int kLatentColumns = 64;  // of sums

// Latent attention of some rows: one stage after the other. Parts of a stage may be computed at once.
enum class LatentStage {
  kScores,   // positions: a part begins with a page; the last one ends where the last row's do
  kWeights,  // rows: scores become exponentials, which are added up to `totals`
  kSums,     // columns of the output: a part begins at a multiple of kLatentColumns
};

// Query rows that share the rows of latent attention: see LatentShape. What is the same as for attention stands in `latents`,
// whose head_dim is the rank and whose keys and values are the page's latents; it has at most kLatentRows rows, no window and no
// sinks. Its output may be its query: that is read for scores alone.
struct LatentArguments {
  AttentionArguments latents;
  const float* rotated;  // row r at rotated + r * rotated_stride
  int64_t rotated_stride;
  int rotary_dims;
  float* totals;  // (rows)
  LatentStage stage;
  int begin, end;  // the part of it
};

// Computes the rows of panels [begin, end).
using MatMulFunction = void (*)(const MatMulArguments& arguments, int begin, int end);

// One for each format there is: see products.h.
struct Products {
  MatMulFunction of[kFormatCount];  // indexed by FormatId
};

struct KernelTable {
  Products mat_mul;
  void (*prepare)(const PrepareArguments& arguments);
  void (*rms_norm)(const float* x, const float* weight, float eps, int cols, float* y);  // weight may be null
  void (*rope)(const RopeArguments& arguments);
  void (*attention[kKvFormatCount])(const AttentionArguments& arguments);  // indexed by KvFormat
  void (*attend_latent[kKvFormatCount])(const LatentArguments& arguments);
  // Indexed by KvFormat, see StoreKvRow.
  void (*store_kv_row[kKvFormatCount])(const float* numbers, int head_dim, void* row);
  void (*delta_rule)(const StateArguments& arguments);
  void (*state_space)(const StateArguments& arguments);
  void (*sigmoid_gate)(float* x, const float* gate, int64_t n);
  void (*swi_glu)(const float* gate, const float* up, int64_t n, float* out);
  void (*clamped_swi_glu)(const SwiGluClamp& clamp, const float* gate, const float* up, int64_t n, float* out);
  void (*ge_glu)(const float* gate, const float* up, int64_t n, float* out);
  void (*squared_relu)(float* x, int64_t n);
  void (*soft_cap)(float* x, float cap, int64_t n);
  void (*softmax)(float* x, int n);
  void (*add_scaled)(float* y, const float* x, float scale, int64_t n);
  void (*add)(float* y, const float* x, int64_t n);
};

extern const KernelTable kScalarKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvxVnniKernels;
extern const KernelTable kAvx512VnniKernels;
extern const KernelTable kAmxInt8Kernels;
bool ProcessorHasAmxInt8();
// Linux gives tiles to processes that ask: 0, or the error. Asks once, for every thread, before or after it starts.
int AskForTiles();
#elif defined(__aarch64__)
extern const KernelTable kNeonDotprodKernels;
extern const KernelTable kNeonI8mmKernels;
bool HasNeonDotprod();
bool HasNeonI8mm();
#endif

}  // namespace moed
