// Pages that have a label: who holds them, who writes to them, in which order they go.
#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "tests/model/kv_pool_specs.h"

namespace moed {
namespace {

// A sequence with so many full pages, each with a label of its own from `label` on.
KvSequence Labelled(KvPool& pool, int pages, uint64_t label) {
  KvSequence sequence;
  EXPECT_TRUE(pool.Reserve(sequence, pages * pool.page_tokens()));
  sequence.length = pages * pool.page_tokens();
  for (const int32_t page : sequence.pages) pool.Label(page, label++);
  return sequence;
}

TEST(KvPoolTest, LabelsStayUntilAPageIsGivenOutAgainTheEndOfTheOldestFirst) {
  auto pool = *KvPool::Create(SmallSpec(), {.pages = 6});
  KvSequence first = Labelled(*pool, 2, 10), second = Labelled(*pool, 2, 20);
  const std::vector<int32_t> of_first = first.pages, of_second = second.pages;
  pool->Release(first);
  pool->Release(second);
  EXPECT_EQ(pool->free_pages(), 6);
  EXPECT_EQ(pool->remembered_pages(), 4);
  KvSequence next;
  const std::vector<int32_t> order = {of_first[1], of_first[0], of_second[1], of_second[0]};
  for (int taken = 0; taken < 6; ++taken) {
    for (int i = 0; i < 4; ++i) EXPECT_EQ(pool->LabelOf(order[i]) != 0, i >= taken - 2) << i << " after " << taken;
    ASSERT_TRUE(pool->Reserve(next, (taken + 1) * kKvPageTokens));
  }
  EXPECT_EQ(pool->remembered_pages(), 0);
}

TEST(KvPoolTest, SharedPagesGoWithTheirLastHolder) {
  auto pool = *KvPool::Create(SmallSpec(), {.pages = 6});
  KvSequence first = Labelled(*pool, 3, 10), second;
  ASSERT_TRUE(pool->Reserve(second, 10));
  second.length = 10;
  pool->Share(second, 0, std::span(first.pages).first(2));
  EXPECT_EQ(second.length, 2 * kKvPageTokens);
  EXPECT_EQ(second.pages, std::vector<int32_t>(first.pages.begin(), first.pages.begin() + 2));
  EXPECT_EQ(pool->free_pages(), 3) << "its own page went back";
  EXPECT_EQ(pool->shared_holds(), 2);
  pool->Release(first);
  EXPECT_EQ(pool->shared_holds(), 0);
  EXPECT_EQ(pool->free_pages(), 4);
  EXPECT_EQ(pool->HoldersOf(second.pages[0]), 1);
  pool->Release(second);
  EXPECT_EQ(pool->free_pages(), 6);
  EXPECT_EQ(pool->remembered_pages(), 3);
}

TEST(KvPoolTest, TheRingIsJudgedWhereTheSequenceThenEnds) {
  auto pool = *KvPool::Create(WindowedSpec(2 * kKvPageTokens), {.pages = 12, .slots = 2});
  KvSequence first = Labelled(*pool, 5, 10), second;
  pool->Share(second, 0, std::span(first.pages).first(4));
  // In the middle of a page that `second` holds: what is left begins three pages down, and its window a page that is overwritten.
  const int length = 4 * kKvPageTokens - 1, reached = 5 * kKvPageTokens + 40;
  ASSERT_TRUE(pool->Reserve(first, reached));
  EXPECT_FALSE(pool->CanCutBack(first, length, reached));
  pool->CutBack(first, length, reached);
  EXPECT_EQ(first.length, 3 * kKvPageTokens);
  EXPECT_TRUE(pool->Lost(first));
  for (KvSequence* sequence : {&first, &second}) pool->Release(*sequence);
}

TEST(KvPoolTest, WhatOthersHoldIsNeverWrittenTo) {
  auto pool = *KvPool::Create(SmallSpec(), {.pages = 6});
  KvSequence first = Labelled(*pool, 3, 10), second;
  pool->Share(second, 0, first.pages);
  pool->CutBack(second, 2 * kKvPageTokens + 5, second.length);
  EXPECT_EQ(second.length, 2 * kKvPageTokens) << "up to the page that would be written to";
  EXPECT_EQ(second.pages.size(), 2u);
  pool->CutBack(first, 2 * kKvPageTokens + 5, first.length);
  EXPECT_EQ(first.length, 2 * kKvPageTokens + 5) << "its own alone";
  EXPECT_EQ(pool->LabelOf(first.pages[2]), 0u);
  pool->CutBack(first, kKvPageTokens, first.length);
  EXPECT_EQ(pool->LabelOf(first.pages[0]), 10u) << "nobody writes to what ends here";
  EXPECT_EQ(pool->shared_holds(), 1);
  for (KvSequence* sequence : {&first, &second}) pool->Release(*sequence);
  EXPECT_EQ(pool->remembered_pages(), 2);
}

TEST(KvPoolTest, ACopyOfAPageIsWrittenToAloneAndNeedsAFreePage) {
  auto pool = *KvPool::Create(SmallSpec(), {.pages = 3});
  KvSequence first = Labelled(*pool, 1, 10), second, third;
  std::byte* const page = pool->PageOf(first, 0, LayerId(1));
  page[3] = std::byte{42};
  ASSERT_TRUE(pool->AdoptCopy(second, first.pages[0], 20));
  EXPECT_EQ(second.length, 20);
  EXPECT_NE(second.pages[0], first.pages[0]);
  EXPECT_EQ(pool->PageOf(second, 0, LayerId(1))[3], std::byte{42});
  pool->PageOf(second, 0, LayerId(1))[3] = std::byte{43};
  EXPECT_EQ(page[3], std::byte{42});
  EXPECT_EQ(pool->LabelOf(first.pages[0]), 10u);
  pool->Release(second);
  ASSERT_TRUE(pool->Reserve(second, 2 * kKvPageTokens));
  EXPECT_FALSE(pool->AdoptCopy(third, first.pages[0], 20)) << "no page is left";
  const int32_t only = first.pages[0];
  pool->Release(first);
  EXPECT_FALSE(pool->AdoptCopy(third, only, 20)) << "but the page itself";
  EXPECT_FALSE(third.holds_memory());
  EXPECT_EQ(pool->free_pages(), 1);
  EXPECT_EQ(pool->LabelOf(only), 10u);
}

TEST(KvPoolTest, APageThatIsNotFullIsTakenWhole) {
  auto pool = *KvPool::Create(SmallSpec(), {.pages = 4});
  KvSequence first = Labelled(*pool, 2, 10), second;
  const int32_t tail = first.pages[1];
  pool->Release(first);
  ASSERT_TRUE(pool->Reserve(second, kKvPageTokens));
  second.length = kKvPageTokens;
  pool->Adopt(second, tail, 9);
  EXPECT_EQ(second.length, kKvPageTokens + 9);
  EXPECT_EQ(second.pages[1], tail);
  EXPECT_EQ(pool->LabelOf(tail), 0u);
  EXPECT_EQ(pool->remembered_pages(), 1);
  pool->Release(second);
  EXPECT_EQ(pool->free_pages(), 4);
}

}  // namespace
}  // namespace moed
