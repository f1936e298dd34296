// Products of many tokens, as prompts have them: a warp for each panel of 8 rows, 4 lanes for each row, which have tokens of
// their own, or of float rows partial sums. What the scalar definition adds in order is added in that order, by one lane. A block
// of threads takes neighbouring panels of a job, so that it brings the activations to shared memory once.
#pragma once

#include "core/kernels/device/few_products.h"
#include "core/kernels/device/float_sums.h"
#include "core/kernels/device/integer_sums.h"
#include "core/kernels/device/panel_chunks.h"
#include "core/kernels/device/weights.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr int kWarps = cuda::kPanelsOfBlock;
constexpr int kRowLanes = 32 / kPanelRows;  // lane 8 q + r is of row r
constexpr int kGroups = kBlockColumns / quant::kGroupColumns;

// The activations of some tokens for the columns of a chunk, as the block of threads stages them: codes with scales and sums.
template <int kTokens, int kColumns>
struct StagedCodes {
  static constexpr int kStride = kColumns + 16;  // of a token, so that tokens begin in different banks
  static constexpr int kBlocks = kColumns / kBlockColumns;
  static constexpr unsigned kBytes = kTokens * (kStride + kBlocks * (sizeof(float) + sizeof(int32_t)));

  unsigned begin;
  __device__ Shared<const unsigned char> codes(int token) const {
    return SharedMemory<const unsigned char>(begin + token * kStride);
  }
  __device__ Shared<float> scales() const { return SharedMemory<float>(begin + kTokens * kStride); }
  __device__ Shared<int32_t> sums() const { return SharedMemory<int32_t>(begin + kTokens * (kStride + kBlocks * sizeof(float))); }

  // 32-column blocks [first, first + blocks) of `tokens` tokens from first_token on.
  __device__ void Stage(const cuda::ProductJob& job, int first_token, int tokens, int first, int blocks) const {
    constexpr int kUnits = kBlockColumns / sizeof(uint4);
    for (int i = threadIdx.x; i < tokens * blocks * kUnits; i += blockDim.x) {
      const int token = i / (blocks * kUnits), unit = i % (blocks * kUnits);
      const int64_t from = (static_cast<int64_t>(first_token + token) * job.blocks + first) * kUnits + unit;
      Store(SharedMemory<unsigned char>(begin + token * kStride), unit, Load<uint4>(Global<const int8_t>(job.codes), from));
    }
    for (int i = threadIdx.x; i < tokens * blocks; i += blockDim.x) {
      const int token = i / blocks, block = i % blocks;
      const int64_t from = static_cast<int64_t>(first_token + token) * job.blocks + first + block;
      scales()[token * kBlocks + block] = Global<const float>(job.scales)[from];
      sums()[token * kBlocks + block] = Global<const int32_t>(job.sums)[from];
    }
  }
};

template <int kTokens, int kColumns>
struct StagedValues {
  static constexpr int kStride = kColumns + 4;
  static constexpr unsigned kBytes = kTokens * kStride * sizeof(float);

  unsigned begin;
  __device__ Shared<float> values(int token) const { return SharedMemory<float>(begin) + token * kStride; }

  __device__ void Stage(const cuda::ProductJob& job, int first_token, int tokens, int first, int blocks) const {
    const int columns = blocks * kBlockColumns;
    for (int i = threadIdx.x; i < tokens * columns; i += blockDim.x) {
      const int token = i / columns, column = i % columns;
      const int64_t from = (static_cast<int64_t>(first_token + token) * job.blocks + first) * kBlockColumns + column;
      values(token)[column] = Global<const float>(job.values)[from];
    }
  }
};

// Rows of codes. The lanes of a row have tokens of their own, kOwn each.
template <class Layout, int kOwn>
struct BlockRows {
  static constexpr int kTokens = kRowLanes * kOwn;
  static constexpr int kParts = kBlockColumns / Layout::kPartColumns;  // of 32 columns
  static constexpr bool kSumsOfParts = Layout::kHasOffsets && kParts > 1;
  template <int kColumns>
  using Staged = StagedCodes<kTokens, kColumns>;

  int row, quarter;
  float sums[kOwn] = {};

  __device__ BlockRows() : row(threadIdx.x % kPanelRows), quarter(threadIdx.x % 32 / kPanelRows) {}
  __device__ int token(int own) const { return quarter + kRowLanes * own; }

  // A format's block; `first`: its 32-column block in the chunk.
  template <class Tokens>
  __device__ void Add(Shared<const unsigned char> block, const Tokens& x, int first, int tokens) {
    quant::RowBlock scales;
    Layout::Scales::Get(BytesAt(block), row, scales);
    MOED_UNROLL
    for (int b = 0; b < Layout::kColumns / kBlockColumns; ++b) {
      uint32_t levels[kGroups];
      LevelWords<Layout>(static_cast<const Layout*>(nullptr), BytesAt(block), b, row, levels);
      MOED_UNROLL
      for (int own = 0; own < kOwn; ++own) {
        if (token(own) < tokens) AddToken(levels, scales, b, x, first + b, own);
      }
    }
  }

  template <class Tokens>
  __device__ void AddToken(const uint32_t (&levels)[kGroups], const quant::RowBlock& scales, int b, const Tokens& x, int block,
                           int own) {
    const Shared<const unsigned char> codes = x.codes(token(own)) + kBlockColumns * block;
    const int4 low = Load<int4>(codes, 0), high = Load<int4>(codes, 1);
    const int fours[kGroups] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    int dots[kParts] = {}, x_sums[kParts] = {};
    MOED_UNROLL
    for (int s = 0; s < kGroups; ++s) {
      const int part = s / (kGroups / kParts);
      dots[part] = __dp4a(static_cast<int>(levels[s]), fours[s], dots[part]);
      if constexpr (kSumsOfParts) x_sums[part] = __dp4a(static_cast<int>(kEveryByte), fours[s], x_sums[part]);
    }
    const int at = token(own) * Tokens::kBlocks + block;
    const float x_scale = x.scales()[at];
    if constexpr (Layout::kHasOffsets && !kSumsOfParts) x_sums[0] = x.sums()[at];
    MOED_UNROLL
    for (int part = 0; part < kParts; ++part) {
      const int of_block = kParts * b + part;
      sums[own] = fmaf(static_cast<float>(dots[part]), Layout::Scale(scales, of_block) * x_scale, sums[own]);
      if constexpr (Layout::kHasOffsets) {
        sums[own] = fmaf(static_cast<float>(x_sums[part]), Layout::Offset(scales, of_block) * x_scale, sums[own]);
      }
    }
  }

  // done(token, the row's sum) by one lane each.
  template <class Done>
  __device__ void End(int tokens, const Done& done) const {
    MOED_UNROLL
    for (int own = 0; own < kOwn; ++own) {
      if (token(own) < tokens) done(token(own), row, sums[own]);
    }
  }
};

// Rows of floats: columns q and q + 4 of every 8 are of quarter q, for all tokens.
template <class Layout, int kOwn>
struct FloatRows {
  static constexpr int kTokens = kOwn;
  template <int kColumns>
  using Staged = StagedValues<kTokens, kColumns>;

  int row, quarter;
  float lower[kOwn] = {}, upper[kOwn] = {};

  __device__ FloatRows() : row(threadIdx.x % kPanelRows), quarter(threadIdx.x % 32 / kPanelRows) {}

  template <class Tokens>
  __device__ void Add(Shared<const unsigned char> block, const Tokens& x, int first, int tokens) {
    for (int column = quarter; column < Layout::kColumns; column += kPartialSums) {
      const float low = Layout::Weight(BytesAt(block), column, row),
                  high = Layout::Weight(BytesAt(block), column + kRowLanes, row);
      const int at = kBlockColumns * first + column;
      MOED_UNROLL
      for (int own = 0; own < kOwn; ++own) {
        if (own >= tokens) continue;
        lower[own] = fmaf(low, x.values(own)[at], lower[own]);
        upper[own] = fmaf(high, x.values(own)[at + kRowLanes], upper[own]);
      }
    }
  }
  template <class Done>
  __device__ void End(int tokens, const Done& done) const {
    MOED_UNROLL
    for (int own = 0; own < kOwn; ++own) {
      if (own >= tokens) continue;
      float sum = lower[own] + upper[own];
      sum = sum + __shfl_xor_sync(kEveryLane, sum, 2 * kPanelRows);
      sum = sum + __shfl_xor_sync(kEveryLane, sum, kPanelRows);
      if (quarter == 0) done(own, row, sum);
    }
  }
};

// By way of `staged`, the warp's own, so that no lane holds what it takes to finish many tokens.
template <class Rows>
__device__ inline void FinishPanel(const cuda::ProductJob& job, int first_token, int tokens, int panel, Shared<float> staged,
                                   const Rows& rows) {
  __syncwarp();
  rows.End(tokens, [&](int token, int row, float sum) { staged[kPanelRows * token + row] = sum; });
  __syncwarp();
  for (int i = threadIdx.x % 32; i < kPanelRows * tokens; i += 32) {
    FinishRow(job, first_token + i / kPanelRows, kPanelRows * panel + i % kPanelRows, staged[i]);
  }
}

template <class Layout, class Rows>
struct ProductShape {
  using Chunks = ChunksOfWarp<Layout::kBytes>;
  using Staged = typename Rows::template Staged<Chunks::kBlocks * Layout::kColumns>;
  static constexpr unsigned kPanels = kWarps * Chunks::kSharedBytes;  // bytes of shared memory, behind them the activations
  static_assert(Rows::kTokens * kPanelRows * sizeof(float) <= Chunks::kSharedBytes);
};

// A block of threads for each group of panels and some tokens. Those of the same panels follow each other, so that the caches
// still have them.
template <class Layout, class Rows>
__global__ void Products(cuda::ProductsOperation a) {
  JoinLaunches();
  using Shape = ProductShape<Layout, Rows>;
  using Chunks = typename Shape::Chunks;
  constexpr int kRatio = Layout::kColumns / kBlockColumns;
  const int pieces = (a.tokens + Rows::kTokens - 1) / Rows::kTokens;  // of the tokens
  const int group = static_cast<int>(blockIdx.x) / pieces, first_token = static_cast<int>(blockIdx.x) % pieces * Rows::kTokens;
  const cuda::ProductJob job = WithChoice(JobOfGroup(a, group));
  const int tokens = min(job.tokens - first_token, Rows::kTokens);
  if (tokens <= 0) return;
  const int warp = threadIdx.x / 32, panel = (group - job.first_group) * kWarps + warp;
  const bool there = panel * kPanelRows < job.rows;
  const int blocks = job.blocks / kRatio;
  const Global<const unsigned char> weights =
      Global<const unsigned char>(job.weights) + static_cast<int64_t>(panel) * blocks * Layout::kBytes;
  const auto own = SharedMemory<unsigned char>(warp * Chunks::kSharedBytes);
  const typename Shape::Staged x = {Shape::kPanels};

  Rows rows;
  Chunks chunks;
  if (there) chunks.Fetch(weights, 0, min(Chunks::kBlocks, blocks));
  for (int first = 0; first < blocks; first += Chunks::kBlocks) {
    const int count = min(Chunks::kBlocks, blocks - first), next = first + count;
    __syncthreads();
    const Shared<const unsigned char> staged = there ? chunks.Put(own, count) : own;
    x.Stage(job, first_token, tokens, kRatio * first, kRatio * count);
    __syncthreads();
    if (!there) continue;
    if (next < blocks) chunks.Fetch(weights, next, min(Chunks::kBlocks, blocks - next));
    for (int block = 0; block < count; ++block) rows.Add(staged + block * Layout::kBytes, x, kRatio * block, tokens);
  }
  if (!there) return;
  FinishPanel(job, first_token, tokens, panel, PointerCast<float>(own), rows);
}

template <class Layout, class Rows>
void LaunchProductsOf(DeviceStream& stream, const cuda::ProductsOperation& a) {
  using Shape = ProductShape<Layout, Rows>;
  Launch<Products<Layout, Rows>>(
      stream,
      {.grid = {static_cast<unsigned>(a.groups) * Blocks(static_cast<unsigned>(a.tokens), Rows::kTokens)},
       .block = {32 * kWarps},
       .shared_bytes = Shape::kPanels + Shape::Staged::kBytes},
      a);
}

// One token, a few as decoding has them, the many of a prompt.
template <FormatId kFormat>
struct ProductsOf {
  using Layout = PanelLayout<kFormat>;
  static void kLaunch(DeviceStream& stream, const cuda::ProductsOperation& a) {
    if constexpr (kIsFloats<kFormat>) {
      if (a.tokens == 1) return LaunchProductsOfFew<Layout, FloatSums<Layout, 1>>(stream, a);
      if (a.tokens <= cuda::kFewTokens) return LaunchProductsOfFew<Layout, FloatSums<Layout, cuda::kFewTokens>>(stream, a);
      LaunchProductsOf<Layout, FloatRows<Layout, 8>>(stream, a);
    } else {
      if (a.tokens == 1) return LaunchProductsOfFew<Layout, IntegerSums<Layout, 1>>(stream, a);
      if (a.tokens <= cuda::kFewTokens) return LaunchProductsOfFew<Layout, IntegerSums<Layout, 4>>(stream, a);
      LaunchProductsOf<Layout, BlockRows<Layout, 8>>(stream, a);
    }
  }
};

inline void LaunchProducts(DeviceStream& stream, const cuda::ProductsOperation& a) {
  if (a.groups == 0 || a.tokens == 0) return;
  kFormatTable<cuda::Launcher<cuda::ProductsOperation>, ProductsOf>.of[static_cast<int>(a.format)](stream, a);
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
