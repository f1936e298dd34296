// Products of few tokens, as decoding has them. A block of threads takes a panel of 8 rows, or a few short ones that follow each
// other, and brings their bytes to shared memory together. What a row adds up has no order until it is added: of integer formats
// each thread makes the terms of a row's block for some tokens, and then a thread for each row and token adds them in the scalar
// definition's order. Of float formats two warps add for each token, 8 lanes a row.
#pragma once

#include "core/kernels/device/panel_chunks.h"
#include "core/kernels/device/product_jobs.h"
#include "core/kernels/device/weights.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr int kFewTokens = cuda::kFewTokens;

// What of a launch a block of threads multiplies: blocks of the format in panels that follow each other.
struct FewPanels {
  int first, count;  // panels
  int blocks;        // of the format, in a row
  __device__ int all() const { return count * blocks; }
};

// Sums of rows of integers: 8 of a panel, panel by panel, token by token.
template <class Layout, int kTokensOfPass>
struct IntegerSums {
  static constexpr int kRatio = Layout::kColumns / kBlockColumns;
  static constexpr int kPartsOf32 = kBlockColumns / Layout::kPartColumns;
  static constexpr int kParts = kRatio * kPartsOf32;          // of a block
  static constexpr int kTerms = Layout::kHasOffsets ? 2 : 1;  // of a part
  static constexpr int kGroups = kBlockColumns / quant::kGroupColumns;
  static constexpr int kZero = ZeroCode<Layout>();
  static constexpr int kTogether = kTokensOfPass == 1 ? 6 : 5;  // blocks of threads that a multiprocessor has registers for
  static constexpr bool kWantsSums = Layout::kHasOffsets || kZero != 0;
  using Chunks = PanelChunks<Layout::kBytes>;
  static constexpr unsigned kTermsOfToken = Chunks::kBlocks * kParts * kTerms * kPanelRows;
  static constexpr unsigned kSumBytes = kFewTokens * kPanelRows * sizeof(float);
  static constexpr unsigned kSharedBytes = kTokensOfPass * kTermsOfToken * sizeof(float2) + kSumBytes;

  const cuda::ProductJob& job;
  const FewPanels& panels;
  Shared<float> sums;
  Shared<float2> terms;

  __device__ IntegerSums(const cuda::ProductJob& its_job, const FewPanels& its_panels, unsigned shared)
      : job(its_job), panels(its_panels), sums(SharedMemory<float>(shared)), terms(SharedMemory<float2>(shared + kSumBytes)) {}

  // `count` blocks from `first` on, which `staged` holds; by the whole block of threads.
  __device__ void Add(Shared<const unsigned char> staged, int first, int count) {
    for (int token = 0; token < job.tokens; token += kTokensOfPass) {
      const int tokens = min(kTokensOfPass, job.tokens - token);
      if (token > 0) __syncthreads();
      for (int i = threadIdx.x / kPanelRows; BeginOf(i) < kRatio * count; i += blockDim.x / kPanelRows) {
        const int of_chunk = BlockOf(i), of_row = panels.count == 1 ? first * kRatio + of_chunk : of_chunk % job.blocks;
        if (of_chunk >= kRatio * count) continue;
        MakeTerms(BytesAt(staged + of_chunk / kRatio * Layout::kBytes), threadIdx.x % kPanelRows, of_chunk, of_row, token,
                  tokens);
      }
      __syncthreads();
      AddTerms(first == 0, first + count == panels.all(), token, tokens, panels.count == 1 ? count : panels.blocks);
    }
  }

  // Which of the chunk's 32 columns are the i-th: the four of a warp are so far apart that their words, 8 of a block in
  // neighbouring banks, are in different ones.
  static constexpr int Apart() {
    constexpr int kWords = Layout::kBytes / 4, kBanks = 32;
    for (int apart = 1; kRatio == 1 && apart <= 4; apart *= 2) {
      if (kWords * apart % kBanks == kPanelRows || kWords * apart % kBanks == kBanks - kPanelRows) return apart;
    }
    return 1;
  }
  static __device__ int BeginOf(int i) {
    constexpr int kOfSteps = 4 * Apart();  // of a warp's steps that go through neighbours
    return i / kOfSteps * kOfSteps;
  }
  static __device__ int BlockOf(int i) {
    constexpr int kApart = Apart();
    return BeginOf(i) + i % 4 * kApart + i % (4 * kApart) / 4;
  }

  // Of the chunk's 32 columns number `block`.
  __device__ Shared<float2> TermsOf(int token, int block, int row) const {
    return terms + (token * static_cast<int>(kTermsOfToken) + block * (kPartsOf32 * kTerms * kPanelRows) + row);
  }

  // Codes where a constant makes levels of them, else levels.
  template <class Memory>
  static __device__ void Words(Memory at, int b, int row, uint32_t (&words)[kGroups]) {
    if constexpr (kZero != 0) {
      MOED_UNROLL
      for (int s = 0; s < kGroups; ++s) words[s] = CodeWord<Layout>(at, b, row, s);
    } else {
      LevelWords<Layout>(static_cast<const Layout*>(nullptr), at, b, row, words);
    }
  }

  // Of row `row` of 32 columns: number `of_chunk` of the chunk, of whose format's block they are, and `of_row` of the row.
  template <class Memory>
  __device__ void MakeTerms(Memory at, int row, int of_chunk, int of_row, int first_token, int tokens) const {
    const int b = of_chunk % kRatio;
    quant::RowBlock scales[kPartsOf32];
    MOED_UNROLL
    for (int part = 0; part < kPartsOf32; ++part) {
      quant::GetOfPart<typename Layout::Scales>(at, row, kPartsOf32 * b + part, scales[part]);
    }
    uint32_t words[kGroups];
    Words(at, b, row, words);
    MOED_UNROLL
    for (int token = 0; token < kTokensOfPass; ++token) {
      if (token >= tokens) continue;
      PutTerms(words, scales, static_cast<int64_t>(first_token + token) * job.blocks + of_row, TermsOf(token, of_chunk, row));
    }
  }

  // x: the 32 columns' number among all of the activations.
  __device__ void PutTerms(const uint32_t (&words)[kGroups], const quant::RowBlock (&scales)[kPartsOf32], int64_t x,
                           Shared<float2> to) const {
    const Global<const int8_t> codes(job.codes);
    const int4 low = Load<int4>(codes, 2 * x), high = Load<int4>(codes, 2 * x + 1);
    const int fours[kGroups] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    const float x_scale = Global<const float>(job.scales)[x];
    int dots[kPartsOf32] = {}, x_sums[kPartsOf32] = {};
    if constexpr (kWantsSums && kPartsOf32 == 1) x_sums[0] = Global<const int32_t>(job.sums)[x];
    MOED_UNROLL
    for (int s = 0; s < kGroups; ++s) {
      const int part = s / (kGroups / kPartsOf32);
      dots[part] = __dp4a(static_cast<int>(words[s]), fours[s], dots[part]);
      if constexpr (kWantsSums && kPartsOf32 > 1) x_sums[part] = __dp4a(static_cast<int>(kEveryByte), fours[s], x_sums[part]);
    }
    MOED_UNROLL
    for (int part = 0; part < kPartsOf32; ++part) {
      const int at = part * kTerms * kPanelRows;
      const auto dot = static_cast<float>(dots[part] - kZero * x_sums[part]);
      Store(to, at, make_float2(dot, Layout::Scale(scales[part], 0) * x_scale));
      if constexpr (Layout::kHasOffsets) {
        Store(to, at + kPanelRows, make_float2(static_cast<float>(x_sums[part]), Layout::Offset(scales[part], 0) * x_scale));
      }
    }
  }

  // In order, a thread for each row of each panel and token; several are read before they are added.
  __device__ void AddTerms(bool begins, bool ends, int first_token, int tokens, int blocks) const {
    constexpr int kAhead = 4;
    const int count = blocks * kParts * kTerms, of_token = kPanelRows * panels.count;
    for (int i = threadIdx.x; i < of_token * tokens; i += blockDim.x) {
      const int token = i / of_token, panel = i % of_token / kPanelRows;
      const Shared<float> own = sums + (of_token * first_token + i);
      const Shared<const float2> from = TermsOf(token, panel * blocks * kRatio, i % kPanelRows);
      float sum = begins ? 0.0f : static_cast<float>(*own);
      for (int term = 0; term < count; term += kAhead) {
        float2 ahead[kAhead];
        MOED_UNROLL
        for (int k = 0; k < kAhead; ++k) {
          if (term + k < count) ahead[k] = Load<float2>(from, (term + k) * kPanelRows);
        }
        MOED_UNROLL
        for (int k = 0; k < kAhead; ++k) {
          if (term + k < count) sum = fmaf(ahead[k].x, ahead[k].y, sum);
        }
      }
      if (ends) {
        FinishRow(job, first_token + token, kPanelRows * (panels.first + panel) + i % kPanelRows, sum);
      } else {
        *own = sum;
      }
    }
  }

  // Activations come through the caches, and the last chunk ends the sums.
  __device__ void Fetch(int, int) {}
  __device__ void Put(int) const {}
  __device__ void Finish() const {}
};

// Sums of rows of floats: a lane has one of a row's eight partial sums, so two warps have a panel's. Those of strand number
// warp, warp + 4, ... are a warp's: a half of the partial sums of a panel and a token. Where there is one token its columns are
// brought to shared memory with the weights.
template <class Layout, int kMostTokens>
struct FloatSums {
  static constexpr int kSteps = Layout::kColumns / kPartialSums;  // of a block
  static constexpr int kHalves = 2;
  static constexpr int kWarps = static_cast<int>(kChunkThreads) / 32;
  static constexpr int kMostPanels = kMostTokens == 1 ? cuda::kMostPanels : 1;
  static constexpr int kOwn = kHalves * kMostPanels * kMostTokens / kWarps;
  static constexpr int kTogether = 6;  // as above
  using Chunks = PanelChunks<Layout::kBytes>;
  static constexpr bool kStages = kMostTokens == 1;
  static constexpr int kColumns = Chunks::kBlocks * Layout::kColumns;  // of a chunk
  static constexpr int kHeld = kStages ? (kColumns + kChunkThreads - 1) / kChunkThreads : 1;
  static constexpr unsigned kPartialBytes = kMostPanels * kMostTokens * kPartialSums * kPanelRows * sizeof(float);
  static constexpr unsigned kSharedBytes = kPartialBytes + (kStages ? kColumns * sizeof(float) : 0);
  static_assert(kOwn * kWarps == kHalves * kMostPanels * kMostTokens);

  const cuda::ProductJob& job;
  const FewPanels& panels;
  const Shared<float> partials, staged_x;
  float sums[kOwn] = {}, held[kHeld];

  __device__ FloatSums(const cuda::ProductJob& its_job, const FewPanels& its_panels, unsigned shared)
      : job(its_job),
        panels(its_panels),
        partials(SharedMemory<float>(shared)),
        staged_x(SharedMemory<float>(shared + kPartialBytes)) {}

  __device__ int row() const { return threadIdx.x % kPanelRows; }
  // What strand `own` of this warp is.
  __device__ int strand(int own) const { return static_cast<int>(threadIdx.x) / 32 + kWarps * own; }
  __device__ int partial(int own) const { return static_cast<int>(threadIdx.x) % 32 / kPanelRows + 4 * (strand(own) % kHalves); }
  __device__ int panel(int own) const { return strand(own) / kHalves % panels.count; }
  __device__ int token(int own) const { return strand(own) / kHalves / panels.count; }

  // Short panels have the columns in common.
  __device__ int ColumnsOf(int count) const { return (panels.count == 1 ? count : panels.blocks) * Layout::kColumns; }
  __device__ Global<const float> ColumnsFrom(int token, int first) const {
    const int64_t rows = static_cast<int64_t>(token) * job.blocks * kBlockColumns;
    return Global<const float>(job.values) + (rows + (panels.count == 1 ? first * Layout::kColumns : 0));
  }
  __device__ void Fetch(int first, int count) {
    if constexpr (kStages) {
      const Global<const float> from = ColumnsFrom(0, first);
      MOED_UNROLL
      for (int i = 0; i < kHeld; ++i) {
        const int column = static_cast<int>(kChunkThreads) * i + static_cast<int>(threadIdx.x);
        if (column < ColumnsOf(count)) held[i] = from[column];
      }
    }
  }
  __device__ void Put(int count) const {
    if constexpr (kStages) {
      MOED_UNROLL
      for (int i = 0; i < kHeld; ++i) {
        const int column = static_cast<int>(kChunkThreads) * i + static_cast<int>(threadIdx.x);
        if (column < ColumnsOf(count)) staged_x[column] = held[i];
      }
    }
  }

  __device__ void Add(Shared<const unsigned char> staged, int first, int count) {
    const int columns = ColumnsOf(count);
    MOED_UNROLL
    for (int own = 0; own < kOwn; ++own) {
      if (token(own) >= job.tokens) continue;
      const Shared<const unsigned char> weights = staged + panel(own) * (columns / Layout::kColumns * Layout::kBytes);
      if constexpr (kStages) {
        AddColumns(weights, Shared<const float>(staged_x) + partial(own), partial(own), columns, sums[own]);
      } else {
        AddColumns(weights, ColumnsFrom(token(own), first) + partial(own), partial(own), columns, sums[own]);
      }
    }
  }

  // Several columns are read before they are added.
  template <class Columns>
  __device__ void AddColumns(Shared<const unsigned char> weights, Columns x, int partial, int columns, float& sum) const {
    constexpr int kAhead = 8;
    const int steps = columns / kPartialSums;
    for (int step = 0; step < steps; step += kAhead) {
      float weight[kAhead], by[kAhead];
      MOED_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        if (step + k >= steps) continue;
        const auto block = BytesAt(weights + (step + k) / kSteps * Layout::kBytes);
        weight[k] = Layout::Weight(block, (step + k) % kSteps * kPartialSums + partial, row());
        by[k] = x[(step + k) * kPartialSums];
      }
      MOED_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        if (step + k < steps) sum = fmaf(weight[k], by[k], sum);
      }
    }
  }

  __device__ void Finish() const {
    MOED_UNROLL
    for (int own = 0; own < kOwn; ++own) {
      if (token(own) >= job.tokens) continue;
      const int of_rows = (token(own) * panels.count + panel(own)) * kPanelRows + row();
      partials[of_rows * kPartialSums + partial(own)] = sums[own];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < kPanelRows * panels.count * job.tokens; i += blockDim.x) {
      const int token = i / (kPanelRows * panels.count), of_panels = i % (kPanelRows * panels.count);
      FinishRow(job, token, kPanelRows * panels.first + of_panels,
                SumOfPartials(Shared<const float>(partials) + i * kPartialSums));
    }
  }
};

// Descriptions and weights are from before the launches that this one follows: unless one of these chooses the matrix, its first
// bytes are on their way while they end.
template <class Layout, class Sums>
__global__ void __launch_bounds__(kChunkThreads, Sums::kTogether) ProductsOfFew(cuda::ProductsOperation a) {
  using Chunks = typename Sums::Chunks;
  const cuda::ProductJob described = JobOfGroup(a, static_cast<int>(blockIdx.x));
  const bool chosen = described.choice != nullptr;
  if (chosen) JoinLaunches();
  const cuda::ProductJob job = WithChoice(described);
  const int first_panel = (static_cast<int>(blockIdx.x) - job.first_group) * job.panels;
  const FewPanels panels = {.first = first_panel,
                            .count = min(job.panels, (job.rows + kPanelRows - 1) / kPanelRows - first_panel),
                            .blocks = job.blocks * kBlockColumns / Layout::kColumns};
  const Global<const unsigned char> weights =
      Global<const unsigned char>(job.weights) + static_cast<int64_t>(first_panel) * panels.blocks * Layout::kBytes;
  Sums sums(job, panels, Chunks::kSharedBytes);
  Chunks chunks;
  const auto count_of = [&](int first) { return min(Chunks::kBlocks, panels.all() - first); };
  chunks.Fetch(weights, 0, count_of(0));
  if (!chosen) JoinLaunches();
  sums.Fetch(0, count_of(0));
  for (int first = 0; first < panels.all(); first += Chunks::kBlocks) {
    const int count = count_of(first), next = first + count;
    __syncthreads();
    const Shared<const unsigned char> staged = chunks.Put(SharedMemory<unsigned char>(), count);
    sums.Put(count);
    if (next < panels.all()) chunks.Fetch(weights, next, count_of(next));
    __syncthreads();
    sums.Add(staged, first, count);
    if (next < panels.all()) sums.Fetch(next, count_of(next));
  }
  sums.Finish();
}

template <class Layout, class Sums>
void LaunchProductsOfFew(DeviceStream& stream, const cuda::ProductsOperation& a) {
  Launch<ProductsOfFew<Layout, Sums>>(stream,
                                      {.grid = {static_cast<unsigned>(a.groups)},
                                       .block = {kChunkThreads},
                                       .shared_bytes = Sums::Chunks::kSharedBytes + Sums::kSharedBytes},
                                      a);
}

template <class Layout>
constexpr int TokensOfPass() {
  constexpr unsigned kTermBytes = 16 << 10, kMost = 4;
  return std::max(1u, std::min(kMost, kTermBytes / (IntegerSums<Layout, 1>::kTermsOfToken * unsigned{sizeof(float2)})));
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
