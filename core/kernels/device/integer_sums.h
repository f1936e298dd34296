// Sums of few tokens' products with rows of integers. What a row adds up has no order until it is added: each thread makes the
// terms of a row's block for some tokens, and then a thread for each row and token adds them in the scalar definition's order.
#pragma once

#include "core/kernels/device/panel_chunks.h"
#include "core/kernels/device/product_jobs.h"
#include "core/kernels/device/weights.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

// Of 8 rows of each panel, panel by panel, token by token.
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
  using Chunks = ChunksOfFew<Layout::kBytes>;
  static constexpr unsigned kTermsOfToken = Chunks::kBlocks * kParts * kTerms * kPanelRows;
  static constexpr unsigned kSumBytes = cuda::kFewTokens * kPanelRows * sizeof(float);
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

template <class Layout>
constexpr int TokensOfPass() {
  constexpr unsigned kTermBytes = 16 << 10, kMost = 4;
  return std::max(1u, std::min(kMost, kTermBytes / (IntegerSums<Layout, 1>::kTermsOfToken * unsigned{sizeof(float2)})));
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
