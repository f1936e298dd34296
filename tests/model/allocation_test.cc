// Once the vectors have grown, a step allocates nothing. A program of its own: it replaces operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/model/packed_model.h"

namespace {
std::atomic<int64_t> allocations{0};
}

// Not inlined: the compiler would see free() meet the library's operator new.
[[gnu::noinline]] void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace moed {
namespace {

class AllocationTest : public testing::TestWithParam<std::string> {};

TEST_P(AllocationTest, DecodingAllocatesNothing) {
  const StoreReader& store = PackedStore(GetParam(), FormatId::kQ4);
  PackedModel model(store);
  MemoryProvider provider(store);
  TestSequence sequence;
  ASSERT_TRUE(model.kv().Reserve(sequence.kv, 64));
  float sum = 0;
  const auto decode = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      const TokenId token(i * 37 % model.spec().vocabulary);
      SequenceChunk chunk = {.tokens = std::span(&token, 1), .kv = &sequence.kv};
      model.model().Forward(std::span(&chunk, 1), provider, [&](int, int, std::span<float> logits) { sum += logits[0]; });
    }
  };
  decode(2);
  const int64_t before = allocations.load();
  decode(40);
  EXPECT_EQ(allocations.load() - before, 0);
  EXPECT_EQ(sequence.kv.length, 42);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, AllocationTest, testing::ValuesIn(CheckpointNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace moed
