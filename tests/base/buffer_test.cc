#include "core/base/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <string>

#include "core/base/resident_buffers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace moed {
namespace {

uintptr_t AddressOf(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// msync answers ENOMEM for addresses that are not mapped.
bool IsMapped(void* page) { return msync(page, kPageBytes, MS_ASYNC) == 0; }

TEST(BufferTest, WhatIsResidentIsWhatWasTouched) {
  const int64_t before = ResidentBufferBytes().value();
  {
    auto small = Buffer::Allocate(10 * kPageBytes), large = Buffer::Allocate(20 << 20);
    ASSERT_TRUE(small.ok() && large.ok());
    EXPECT_EQ(ResidentBufferBytes().value(), before);
    std::ranges::fill(small->span().first(3 * kPageBytes), std::byte{1});
    EXPECT_EQ(ResidentBufferBytes().value(), before + static_cast<int64_t>(3 * kPageBytes));
    std::ranges::fill(large->span(), std::byte{1});
    EXPECT_EQ(ResidentBufferBytes().value(), before + static_cast<int64_t>(3 * kPageBytes) + (20 << 20));
  }
  EXPECT_EQ(ResidentBufferBytes().value(), before);
}

TEST(BufferTest, WhatTheKernelDoesNotTellIsAnError) {
  const Buffer buffer = Buffer::Allocate(kPageBytes).value();
  ASSERT_EQ(munmap(buffer.data(), kPageBytes), 0);
  EXPECT_THAT(std::string(ResidentBufferBytes().status().message()), testing::HasSubstr("mincore"));
  ASSERT_EQ(mmap(buffer.data(), kPageBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), buffer.data());
}

TEST(BufferTest, OfPagesThatAreNotWholeNothingIsGivenBack) {
  constexpr size_t kLarger = 64 << 10;  // a kernel's that has no smaller ones
  const Buffer buffer = Buffer::Allocate(kLargePageBytes).value();
  std::ranges::fill(buffer.span(), std::byte{1});
  const int64_t before = ResidentBufferBytes().value();
  GiveBackPages(buffer.span().subspan(kPageBytes, kLarger), kLarger);
  GiveBackPages(buffer.span().subspan(0, kLarger - kPageBytes), kLarger);
  GiveBackPages(buffer.span().last(kPageBytes), kLarger);
  EXPECT_EQ(ResidentBufferBytes().value(), before);
  GiveBackPages(buffer.span().subspan(kPageBytes, 3 * kLarger), kLarger);
  EXPECT_EQ(ResidentBufferBytes().value(), before - static_cast<int64_t>(2 * kLarger));
  EXPECT_EQ(buffer.span()[kLarger - 1], std::byte{1});
  EXPECT_EQ(buffer.span()[kLarger], std::byte{0});
  EXPECT_EQ(buffer.span()[3 * kLarger], std::byte{1});
}

TEST(BufferTest, IsZeroFilledAlignedAndWholePages) {
  for (const size_t bytes : {size_t{1}, kPageBytes - 1, kPageBytes, kPageBytes + 1, 10 * kPageBytes + 7}) {
    auto buffer = Buffer::Allocate(bytes);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(buffer->size(), RoundUp(bytes, kPageBytes));
    EXPECT_EQ(AddressOf(buffer->data()) % kPageBytes, 0u);
    const std::span<std::byte> span = buffer->span();
    EXPECT_TRUE(std::all_of(span.begin(), span.end(), [](std::byte b) { return b == std::byte{0}; }));
    std::fill(span.begin(), span.end(), std::byte{0xff});
  }
}

TEST(BufferTest, NothingIsANothing) {
  auto buffer = Buffer::Allocate(0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->data(), nullptr);
  EXPECT_TRUE(buffer->span().empty());
}

TEST(BufferTest, ImpossibleSizesAreRefused) {
  for (const size_t bytes :
       {size_t{1} << 62, std::numeric_limits<size_t>::max(), std::numeric_limits<size_t>::max() - kPageBytes}) {
    EXPECT_EQ(Buffer::Allocate(bytes).status().code(), absl::StatusCode::kResourceExhausted) << bytes;
  }
}

TEST(BufferTest, MovesHandOverTheMappingAndTheLastOwnerReturnsIt) {
  Buffer first = Buffer::Allocate(kPageBytes).value();
  std::byte* const page = first.data();
  page[0] = std::byte{42};
  Buffer second = std::move(first);
  EXPECT_EQ(first.data(), nullptr);
  EXPECT_EQ(first.size(), 0u);
  EXPECT_EQ(second.data(), page);
  EXPECT_EQ(second.data()[0], std::byte{42});

  Buffer third = Buffer::Allocate(kPageBytes).value();
  std::byte* const replaced = third.data();
  third = std::move(second);
  EXPECT_FALSE(IsMapped(replaced));
  EXPECT_TRUE(IsMapped(page));
  third = Buffer();
  EXPECT_FALSE(IsMapped(page));
}

int returned_bytes = 0;  // by CountReturn, which cannot capture

void CountReturn(std::byte*, size_t bytes) { returned_bytes += static_cast<int>(bytes); }

TEST(BufferTest, AdoptedMemoryKeepsItsKindAndGoesBackOnceTheWayItsAllocatorAsks) {
  for (const MemoryKind kind : {MemoryKind::kHost, MemoryKind::kPinned, MemoryKind::kDevice, MemoryKind::kManaged}) {
    returned_bytes = 0;
    std::array<std::byte, 24> memory;
    {
      Buffer first = Buffer::Adopt(memory.data(), memory.size(), kind, CountReturn);
      EXPECT_EQ(first.kind(), kind);
      EXPECT_EQ(first.data(), memory.data());
      Buffer second = std::move(first);
      EXPECT_EQ(first.kind(), MemoryKind::kHost);
      EXPECT_EQ(second.kind(), kind);
      EXPECT_EQ(second.size(), memory.size());
      first = Buffer();
      EXPECT_EQ(returned_bytes, 0);
    }
    EXPECT_EQ(returned_bytes, 24);
  }
  EXPECT_EQ(Buffer::Allocate(1)->kind(), MemoryKind::kHost);
}

TEST(AllocatorTest, TheHostGivesBuffers) {
  auto buffer = Allocator::Host().Allocate(100);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->size(), kPageBytes);
}

TEST(ArenaTest, HandsOutDisjointAlignedArraysUpToItsPlan) {
  const size_t plan = Arena::Rounded(3 * sizeof(double)) + Arena::Rounded(100) + Arena::Rounded(sizeof(int32_t));
  const Buffer storage = Buffer::Allocate(plan).value();
  Arena arena(storage.span().first(plan));
  const std::span<double> doubles = arena.Take<double>(3);
  const std::span<uint8_t> bytes = arena.Take<uint8_t>(100);
  const std::span<int32_t> ints = arena.Take<int32_t>(1);
  EXPECT_EQ(doubles.size(), 3u);
  for (const void* begin :
       {static_cast<void*>(doubles.data()), static_cast<void*>(bytes.data()), static_cast<void*>(ints.data())}) {
    EXPECT_EQ(AddressOf(begin) % 64, 0u);
  }
  EXPECT_LE(AddressOf(doubles.data() + doubles.size()), AddressOf(bytes.data()));
  EXPECT_LE(AddressOf(bytes.data() + bytes.size()), AddressOf(ints.data()));
  EXPECT_LE(AddressOf(ints.data() + ints.size()), AddressOf(storage.data() + plan));
}

TEST(ArenaDeathTest, APlanThatWasTooSmallEndsTheProcess) {
  const Buffer storage = Buffer::Allocate(kPageBytes).value();
  Arena arena(storage.span());
  arena.Take<std::byte>(kPageBytes - 64);
  EXPECT_DEATH(arena.Take<std::byte>(65), "invariant broken");
}

}  // namespace
}  // namespace moed
