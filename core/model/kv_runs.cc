#include "core/model/kv_runs.h"

#include <algorithm>

#include "core/base/check.h"

namespace moed {

int PlanRuns(Step& step, LayerId layer, RowBlock block, int first, std::span<const KvRun>& runs, RowsSee see) {
  Scratch& scratch = step.scratch;
  const int window = step.spec.WindowOf(layer);
  const bool in_chunks = window > 0 && step.spec.windows_are_chunks;
  size_t pages_used = 0;
  size_t runs_used = 0;
  int i = first;
  while (i < block.count) {
    // The rows of one chunk that lie in the block, those of its prefix, and of a window's chunk, by themselves.
    const BatchChunk& at = step.batch.chunk_of(block.begin + i);
    const KvSequence& kv = *at.chunk->kv;
    const int position = step.batch.positions()[block.begin + i];
    const bool in_prefix = position < kv.prefix;
    const int rows = in_prefix ? std::min(at.rows(), kv.prefix - kv.length) : at.rows();
    const int into_chunk = in_chunks ? position % window : 0;
    int end = std::min(block.count, at.first_row + rows - block.begin);
    if (in_chunks) end = std::min(end, i + window - into_chunk);
    const int seen = in_prefix ? kv.prefix : see == RowsSee::kTheSource ? kv.source : 0;
    const int pages = KvPool::PagesFor(seen > 0 ? seen : position + end - i, step.kv.page_tokens());
    if (pages_used + pages > scratch.kv_pages.size()) break;
    const std::span<std::byte*> where = scratch.kv_pages.subspan(pages_used, pages);
    const int first_seen = window == 0 ? 0 : std::max(0, position + 1 - window) / step.kv.page_tokens();
    std::fill_n(where.begin(), first_seen, nullptr);
    for (int page = first_seen; page < pages; ++page) where[page] = step.kv.PageOf(kv, page, layer);
    const int first_position = in_chunks ? position - into_chunk : seen > 0 ? 0 : kv.source;
    scratch.kv_runs[runs_used++] = {
        .pages = where, .position = position, .tokens = end - i, .first = first_position, .seen = seen};
    pages_used += pages;
    i = end;
  }
  MOED_CHECK(i > first);  // one context fits: no sequence is longer than max_context
  runs = scratch.kv_runs.first(runs_used);
  return i;
}

}  // namespace moed
