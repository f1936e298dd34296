// What kernels are given: each a plain struct, copied into the launch. Pointers are the device's, lists too. Shapes and orders
// are those of backend.h.
#pragma once

#include <stdint.h>

#include "core/kernels/ffn_activation.h"
#include "core/kernels/kv_rows.h"
#include "core/kernels/position_bias.h"
#include "core/kernels/recurrence.h"
#include "core/kernels/router.h"
#include "core/quant/format_id.h"

namespace moed::cuda {

// Element by element: `n` of them.
struct AddOperation {
  float* y;
  const float* x;
  int64_t n;
};
struct AddScaledOperation {
  float* y;
  const float* x;
  float scale;
  int64_t n;
};
struct ScaleOperation {
  float* x;
  float scale;
  int64_t n;
};
struct MultiplyOperation {
  float* x;
  const float* by;
  int64_t n;
};
struct SigmoidGateOperation {
  float* x;
  const float* gate;
  int64_t n;
};
struct SoftplusGateOperation {
  float* x;
  const float* gates;
  int width;  // numbers of a gate
  int64_t n;
};
struct ActivateOperation {
  FfnActivation activation;
  const float* gate;
  const float* up;
  float* out;
  int64_t n;
};
struct SoftCapOperation {
  float* x;
  float cap;
  int64_t n;
};
struct DeltaGatesOperation {
  float* a;
  float* b;
  const float* bias;
  const float* decay_rates;
  int heads;
  int decays;  // of a head
  int64_t n;   // rows * heads * decays
};
struct StepSizesOperation {
  float* steps;
  float* decays;
  const float* bias;
  const float* decay_rates;
  int heads;
  int64_t n;  // rows * heads
};
// Rows of 32-bit words of any kind, of several arrays alike.
struct GatherOperation {
  struct Part {
    const uint32_t* from = nullptr;
    uint32_t* to = nullptr;
    int64_t words = 0;  // of a row
  };
  static constexpr int kParts = 4;

  Part parts[kParts];
  const int32_t* rows;
  int64_t words;  // of a row of all parts
  int64_t n;      // words of all rows
};
struct CombineOperation {
  const ExpertChoice* choices;
  const float* expert_scales;
  const int32_t* places;
  const float* outputs;
  const float* shared;
  const float* shared_gate;
  float* x;
  float scale;
  float shared_scale;
  int rows;
  int cols;
  int top_k;
  bool adds;
};
struct ConvolveOperation {
  const StateRun* runs;
  const int64_t* first_rows;  // of each run
  const float* x;
  const float* weights;
  const float* bias;
  float* y;
  int channels;
  int taps;
  bool silu;
  int64_t n;  // runs * channels
};

// Rows in the forms that products read.
struct PreparedRows {
  float* values;  // null: not wanted
  int8_t* codes;  // null: not wanted, and no scales and sums
  float* scales;
  int32_t* sums;
};

// A block of threads for each row.
struct NormOperation {
  const float* x;
  const float* weight;
  const float* bias;  // of a layer norm
  float* y;
  PreparedRows prepared;  // none, or y
  float eps;
  int rows;
  int cols;
};
struct SoftmaxOperation {
  float* x;
  int rows;
  int cols;
};
struct RouteOperation {
  RouterShape shape;
  float* logits;
  ExpertChoice* choices;          // null: the scores become ranks instead
  ExpertChoice* choices_on_host;  // the same, for the host; null: choices are
  int rows;
};
struct RopeOperation {
  float* x;
  const int32_t* positions;
  const float* inv_freq;
  int64_t stride;
  int rows;
  int heads;
  int head_dim;
  int rotary_dims;
  bool interleaved;
  float magnitude;
};

// A warp for each 32 columns of a row.
struct PrepareOperation {
  const float* x;
  int64_t stride;
  int tokens;
  int cols;
  PreparedRows prepared;
};
struct ActivateAndPrepareOperation {
  FfnActivation activation;
  const float* gate;  // (tokens, cols)
  const float* up;
  int tokens;
  int cols;
  PreparedRows prepared;
};

struct EmbedOperation {
  FormatId format;
  const unsigned char* matrix;
  const int32_t* tokens;
  float* y;
  int rows;
  int cols;
};

struct ProductJob {
  const unsigned char* weights;
  const float* values;
  const int8_t* codes;
  const float* scales;
  const int32_t* sums;
  const float* bias;
  float* output;
  int64_t output_stride;
  int rows;
  int blocks;  // of 32 columns
  int tokens;
  int first_group;  // panels of the launch go to blocks of threads in groups; where this job's begin
  int panels;       // of a group
  float scale;
  bool adds;
  const ExpertChoice* choice;  // null: none
  const unsigned char* const* matrices;
};
// Jobs of one format.
struct ProductsOperation {
  FormatId format;
  const ProductJob* jobs;
  int count;
  int groups;  // of all jobs
  int tokens;  // the most of a job
};

// Rows as 16-bit numbers, each row multiplied with a power of two that makes its largest number one from 2^14 on, below 2^15:
// `inverses` are those to go back with. (rows, 32 * Blocks(cols)), padded with zeros.
struct HalfRows {
  uint16_t* numbers;
  float* inverses;  // (rows)
};
struct HalveWeightsOperation {
  FormatId format;
  const unsigned char* matrix;
  HalfRows to;
  int rows;
  int cols;
};
struct HalveInputOperation {
  const float* values;  // null: codes and scales
  const int8_t* codes;
  const float* scales;
  HalfRows to;
  int rows;
  int cols;
};
// From products (tokens, rows) of such rows to outputs.
struct FinishProductsOperation {
  const float* products;
  const float* weight_inverses;  // (rows)
  const float* input_inverses;   // (tokens)
  const float* bias;
  float* output;
  int64_t output_stride;
  int rows;
  float scale;
  bool adds;
  int64_t n;  // tokens * rows
};

// A row of keys and values, or of latents: where in a page it belongs, and in its sequence.
struct KvPlace {
  unsigned char* page;
  int slot;
  int position;
};
// Of latents.
struct StoreRowsOperation {
  KvFormat format;
  const KvPlace* places;  // of each row
  const float* numbers;   // (rows, dims)
  int64_t first_byte;     // in a slot of the page
  int64_t row_bytes;      // from slot to slot
  int rows;
  int dims;
};
// Heads of queries, then of keys, then of values, a warp each. See HeadTransform.
struct HeadsOperation {
  KvFormat format;
  const KvPlace* places;  // of each row
  float* query;           // (rows, heads, dims)
  const float* keys;      // (rows, kv_heads, dims)
  const float* values;    // (rows, kv_heads, dims)
  const float* query_norm;
  const float* key_norm;
  const float* inv_freq;
  int64_t head_bytes;  // of a page, from the keys of one kv head to the next one's; behind them the values likewise
  int64_t row_bytes;   // of values, from slot to slot; keys are transposed, `slots` of them
  int slots;
  int rows;
  int heads;
  int kv_heads;
  int dims;
  int rotary_dims;
  float eps;
  bool norm_last;
  bool interleaved;
  float magnitude;
};

// Rows of neighbouring tokens that a block of threads attends together.
struct AttentionTile {
  const unsigned char* const* pages;
  int64_t first_token;  // among all rows of the call
  int position;         // of the first
  int tokens;
  int first;  // as KvRun's
  int seen;
};
// What blocks of threads that share a row's positions tell each other. A row has pieces of 256 positions, `count` from the one on
// that its tile sees first; query rows are numbered through.
struct AttentionPieces {
  int count = 0;   // of a row; 0: a block of threads takes all positions of its rows
  float* scores;   // (query rows, 256 * count)
  float* largest;  // (query rows, 8 * count), of 32 positions each
  float* sums;     // (query rows, count, dims); nothing where a row has one piece
};
struct AttentionOperation {
  KvFormat format;
  const AttentionTile* tiles;
  const float* query;
  const float* rotated;  // of latent attention; null: keys are transposed, heads side by side
  const float* sinks;
  PositionBias bias;
  float* output;
  int64_t rotated_stride;
  int64_t row_bytes;   // of a position's values
  int64_t head_bytes;  // from the keys of one kv head to the next one's
  int count;           // of tiles
  int heads;
  int kv_heads;
  int heads_of_kv;  // that share keys
  int group;        // of them, that a block takes
  int dims;         // of values
  int rotary_dims;
  int page_tokens;
  int window;
  float scale;
  AttentionPieces pieces;
};

// The delta rule, or the state space where there is a skip.
struct StateOperation {
  const StateRun* runs;
  const int64_t* first_rows;  // of each run
  const float* x;             // (rows, row)
  const float* decay;
  const float* rate;
  const float* skip;
  float* output;
  int64_t row;
  int64_t queries;  // where they begin in a row
  int64_t keys;
  int64_t values;
  int count;  // of runs
  int key_heads;
  int value_heads;
  int key_dim;
  int value_dim;
  int columns;             // of the state, that a warp takes
  bool key_heads_in_turn;  // see DeltaRuleShape; so is the next one
  bool decay_by_channel;
  float scale;
};

}  // namespace moed::cuda
