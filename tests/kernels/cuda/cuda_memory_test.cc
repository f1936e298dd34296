#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>

#include "tests/kernels/emulated_backend.h"

namespace moed {
namespace {

TEST(CudaMemory, IsWholePagesThatBothRead) {
  EmulatedBackend emulated{{.attributes = emulation::kUnifiedDevice}};
  Allocator& shared = emulated.backend->memory().shared();
  for (const size_t bytes : {size_t{1}, kPageBytes, kPageBytes + 1, 3 * kLargePageBytes + 7}) {
    const Buffer buffer = shared.Allocate(bytes).value();
    EXPECT_EQ(buffer.size(), RoundUp(bytes, kPageBytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kPageBytes, 0u);
    EXPECT_EQ(buffer.kind(), MemoryKind::kPinned);
    std::memset(buffer.data(), 1, buffer.size());
  }
  EXPECT_EQ(shared.Allocate(0)->size(), 0u);
}

TEST(CudaMemory, RefusesWhatThereIsNot) {
  EmulatedBackend emulated{{.attributes = emulation::kUnifiedDevice}};
  Allocator& shared = emulated.backend->memory().shared();
  EXPECT_EQ(shared.Allocate(std::numeric_limits<size_t>::max()).status().code(), absl::StatusCode::kResourceExhausted);
  emulated.device->RefuseMemory(true);
  EXPECT_EQ(shared.Allocate(1).status().code(), absl::StatusCode::kResourceExhausted);
}

// A copy is work as operations are: it sees what those before it put out, and those behind it see it.
TEST(CudaMemory, CopiesAreInOrderWithOperations) {
  EmulatedBackend emulated{{.attributes = emulation::kUnifiedDevice}};
  ComputeBackend& backend = *emulated.backend;
  const Buffer buffer = backend.memory().shared().Allocate(2 * sizeof(float)).value();
  auto* const numbers = reinterpret_cast<float*>(buffer.data());
  numbers[0] = 3;
  backend.Scale(numbers, 2, 1);
  backend.memory().Copy(numbers + 1, numbers, sizeof(float));
  backend.Scale(numbers + 1, 5, 1);
  EXPECT_FALSE(backend.Idle());
  ASSERT_EQ(backend.Fence(), absl::OkStatus());
  EXPECT_EQ(numbers[0], 6);
  EXPECT_EQ(numbers[1], 30);
}

}  // namespace
}  // namespace moed
