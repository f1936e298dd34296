// Sums of few tokens' products with rows of integers. What a row adds up has no order until it is added: each thread makes the
// terms of a row's 32 columns for some tokens, and then a thread for each row and token adds them in the scalar definition's
// order.
#pragma once

#include <algorithm>

#include "core/kernels/device/panel_chunks.h"
#include "core/kernels/device/product_jobs.h"
#include "core/kernels/device/weights.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

// Of 8 rows of each panel of one token, or of one panel and up to kTokensOfPass tokens at a time.
template <class Layout, int kTokensOfPass>
struct IntegerSums {
  static constexpr bool kOneToken = kTokensOfPass == 1;
  static constexpr int kRatio = Layout::kColumns / kBlockColumns;
  static constexpr int kPartsOf32 = kBlockColumns / Layout::kPartColumns;
  static constexpr int kGroups = kBlockColumns / quant::kGroupColumns;
  static constexpr int kZero = ZeroCode<Layout>();
  static constexpr int kTogether = kOneToken ? 6 : 5;  // blocks of threads that a multiprocessor has registers for
  static constexpr bool kWantsSums = Layout::kHasOffsets || kZero != 0;
  using Chunks = ChunksOfFew<Layout::kBytes>;
  // A part's dot product and what it is multiplied by; then, where there are offsets, its sum and theirs.
  using Term = std::conditional_t<Layout::kHasOffsets, float4, float2>;
  static constexpr int kTermsAhead = Layout::kHasOffsets ? kOneToken ? 4 : 3 : 8;
  static constexpr int kAtOnce = kChunkThreads / kPanelRows;  // of 32 columns, a row's with a thread each
  static_assert(kAtOnce % kRatio == 0);
  // Of 32 columns, whose terms are there together: all of a chunk's, which may be of several panels, or as many as few tokens
  // leave room for.
  static constexpr int PassBlocks() {
    constexpr int kTermBytes = 16 << 10;
    constexpr int kBytesOfBlock = kTokensOfPass * kPartsOf32 * kPanelRows * int{sizeof(Term)};
    return kOneToken ? kRatio * Chunks::kBlocks : std::max(1, kTermBytes / kBytesOfBlock / kAtOnce) * kAtOnce;
  }
  static constexpr int kPassBlocks = PassBlocks();
  static constexpr int kTermsOfToken = kPassBlocks * kPartsOf32 * kPanelRows;
  static constexpr unsigned kSums = cuda::kFewTokens * kPanelRows;
  static constexpr unsigned kSumBytes = kSums * sizeof(float);
  static constexpr unsigned kSharedBytes = kTokensOfPass * kTermsOfToken * sizeof(Term) + kSumBytes;

  const cuda::ProductJob& job;
  const FewPanels& panels;
  Shared<float> sums;
  Shared<Term> terms;
  int step;  // kAtOnce blocks further in a row, or in one behind it

  __device__ IntegerSums(const cuda::ProductJob& its_job, const FewPanels& its_panels, unsigned shared)
      : job(its_job),
        panels(its_panels),
        sums(SharedMemory<float>(shared)),
        terms(SharedMemory<Term>(shared + kSumBytes)),
        step(kAtOnce % its_job.blocks) {
    if (threadIdx.x < kSums) sums[threadIdx.x] = 0.0f;
  }

  // `count` blocks from `first` on, which `staged` holds; by the whole block of threads.
  __device__ void Add(Shared<const unsigned char> staged, int first, int count) const {
    const int end = kRatio * count, chunk = first / Chunks::kBlocks;
    if constexpr (kOneToken) {
      AddPass(staged, kRatio * first, 0, end, 0, chunk);
    } else {
      for (int begin = 0; begin < end; begin += kPassBlocks) {
        for (int token = 0; token < job.tokens; token += kTokensOfPass) {
          if (begin + token > 0) __syncthreads();
          AddPass(staged, kRatio * first, begin, min(begin + kPassBlocks, end), token, chunk + begin / kPassBlocks);
        }
      }
    }
  }

  // Of the chunk's 32 columns those from `begin` to `end`; `first` of the row's are the chunk's first. Warps add in turn, since
  // each has but a part of the multiprocessor's schedulers.
  __device__ void AddPass(Shared<const unsigned char> staged, int first, int begin, int end, int first_token, int turn) const {
    MakeTerms(staged, first, begin, end, first_token);
    __syncthreads();
    if (static_cast<int>(threadIdx.x) / 32 == turn % (kChunkThreads / 32)) AddTerms(end - begin, first_token);
  }

  // Which of the columns that are made at once are the i-th: the four of a warp are so far apart that their words, 8 of a block
  // in neighbouring banks, are in different ones.
  static constexpr int Apart() {
    constexpr int kWords = Layout::kBytes / 4, kBanks = 32;
    for (int apart = 1; kRatio == 1 && apart <= 4; apart *= 2) {
      if (kWords * apart % kBanks == kPanelRows || kWords * apart % kBanks == kBanks - kPanelRows) return apart;
    }
    return 1;
  }
  static __device__ int BlockOf(int i) {
    constexpr int kApart = Apart(), kOfSteps = 4 * kApart;  // of a warp's steps that go through neighbours
    return i / kOfSteps * kOfSteps + i % 4 * kApart + i % kOfSteps / 4;
  }

  // A place behind a row's end is in the next panel's row.
  __device__ int InRow(int block) const {
    return static_cast<int>(min(static_cast<unsigned>(block), static_cast<unsigned>(block - job.blocks)));
  }

  __device__ void MakeTerms(Shared<const unsigned char> staged, int first, int begin, int end, int first_token) const {
    const int row = threadIdx.x % kPanelRows, own = begin + BlockOf(static_cast<int>(threadIdx.x) / kPanelRows);
    Shared<const unsigned char> at = staged + own / kRatio * Layout::kBytes;
    Shared<Term> to = terms + ((own - begin) * kPartsOf32 * kPanelRows + row);
    int of_row = first + own;
    while (of_row >= job.blocks) of_row -= job.blocks;
    for (int block = own; block < end; block += kAtOnce) {
      MakeTerms(BytesAt(at), row, own % kRatio, of_row, first_token, to);
      at = at + kAtOnce / kRatio * Layout::kBytes;
      to = to + kAtOnce * kPartsOf32 * kPanelRows;
      of_row = InRow(of_row + step);
    }
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

  // Of row `row` of 32 columns: number b of its format's block, and of_row of the row.
  template <class Memory>
  __device__ void MakeTerms(Memory at, int row, int b, int of_row, int first_token, Shared<Term> to) const {
    quant::RowBlock scales[kPartsOf32];
    MOED_UNROLL
    for (int part = 0; part < kPartsOf32; ++part) {
      quant::GetOfPart<typename Layout::Scales>(at, row, kPartsOf32 * b + part, scales[part]);
    }
    uint32_t words[kGroups];
    Words(at, b, row, words);
    MOED_UNROLL
    for (int token = 0; token < kTokensOfPass; ++token) {
      if (!kOneToken && first_token + token >= job.tokens) continue;
      PutTerms(words, scales, (first_token + token) * job.blocks + of_row, to + token * kTermsOfToken);
    }
  }

  // x: the 32 columns' number among all of the activations.
  __device__ void PutTerms(const uint32_t (&words)[kGroups], const quant::RowBlock (&scales)[kPartsOf32], int x,
                           Shared<Term> to) const {
    const Global<const int8_t> codes = Global<const int8_t>(job.codes) + kBlockColumns * x;
    const int4 low = Load<int4>(codes, 0), high = Load<int4>(codes, 1);
    const int fours[kGroups] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    const float x_scale = Global<const float>(job.scales)[x];
    int dots[kPartsOf32] = {}, x_sums[kPartsOf32] = {};
    if constexpr (kWantsSums) x_sums[kPartsOf32 - 1] = Global<const int32_t>(job.sums)[x];
    MOED_UNROLL
    for (int s = 0; s < kGroups; ++s) {
      const int part = s / (kGroups / kPartsOf32);
      dots[part] = __dp4a(static_cast<int>(words[s]), fours[s], dots[part]);
      if (kWantsSums && part + 1 < kPartsOf32) x_sums[part] = __dp4a(static_cast<int>(kEveryByte), fours[s], x_sums[part]);
    }
    if constexpr (kPartsOf32 == 2) x_sums[1] -= x_sums[0];
    MOED_UNROLL
    for (int part = 0; part < kPartsOf32; ++part) {
      const auto dot = static_cast<float>(dots[part] - kZero * x_sums[part]);
      const float scale = Layout::Scale(scales[part], 0) * x_scale;
      if constexpr (Layout::kHasOffsets) {
        Store(to, part * kPanelRows,
              make_float4(dot, scale, static_cast<float>(x_sums[part]), Layout::Offset(scales[part], 0) * x_scale));
      } else {
        Store(to, part * kPanelRows, make_float2(dot, scale));
      }
    }
  }

  // Of `blocks` times 32 columns, in order, by a lane for each row of each panel or token.
  __device__ void AddTerms(int blocks, int first_token) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, own = lane / kPanelRows, row = lane % kPanelRows;
    if (own >= (kOneToken ? panels.count : min(kTokensOfPass, job.tokens - first_token))) return;
    const int of_panel = (panels.count == 1 ? blocks : kRatio * panels.blocks) * kPartsOf32 * kPanelRows;
    const Shared<float> sum = sums + (kPanelRows * first_token + lane);
    *sum = AddToPartial<Term, kTermsAhead>(*sum, Shared<const Term>(terms + own * (kOneToken ? of_panel : kTermsOfToken)),
                                           of_panel, row, [](float before, const Term& term) {
                                             const float after = fmaf(term.x, term.y, before);
                                             if constexpr (Layout::kHasOffsets) return fmaf(term.z, term.w, after);
                                             return after;
                                           });
  }

  __device__ void Finish() const {
    __syncthreads();
    const int i = threadIdx.x;
    if (i >= kPanelRows * panels.count * job.tokens) return;
    const int token = kOneToken ? 0 : i / kPanelRows;
    FinishRow(job, token, kPanelRows * panels.first + i - kPanelRows * token, sums[i]);
  }

  // Activations come through the caches.
  __device__ void Fetch(int, int) {}
  __device__ void Put(int) const {}
};

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
