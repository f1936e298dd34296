// Work on streams: a pipeline with all its waits gives the right bits whenever the work runs; without any one of them it does
// not.
#include <cstring>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/emulated_device.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

using ::testing::HasSubstr;

constexpr int kNumbers = 64;
constexpr size_t kBytes = kNumbers * sizeof(float);

struct AddArguments {
  Global<const float> x;
  Global<float> y;
  float number;
};
__global__ void Add(AddArguments a) { a.y[threadIdx.x] = a.x[threadIdx.x] + a.number; }

float* Floats(const Buffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }

// The waits of the pipeline below, one of which may be left out.
enum Wait { kKernelForCopyIn, kCopyInForKernel, kCopyOutForKernel, kKernelForCopyOut, kHostForCopyIn, kHostForCopyOut, kNone };
constexpr const char* kWaitNames[] = {"KernelForCopyIn",  "CopyInForKernel", "CopyOutForKernel",
                                      "KernelForCopyOut", "HostForCopyIn",   "HostForCopyOut"};

// Rounds of: the host writes numbers, a stream copies them in, another computes with them, a third copies them out. Every buffer
// but the last is used again in each round. Whether all that the host reads at the end is right.
bool PipelineIsRight(Wait left_out, uint64_t seed) {
  constexpr int kRounds = 3;
  const auto runtime = emulation::MakeEmulatedRuntime({.seed = seed});
  const Buffer in = *runtime->Allocate(kBytes, MemoryKind::kPinned);
  const Buffer out = *runtime->Allocate(kRounds * kBytes, MemoryKind::kPinned);
  const Buffer x = *runtime->Allocate(kBytes, MemoryKind::kDevice), y = *runtime->Allocate(kBytes, MemoryKind::kDevice);
  const auto copies_in = *runtime->MakeStream(), copies_out = *runtime->MakeStream(), kernels = *runtime->MakeStream();
  const auto copied_in = *runtime->MakeEvent(), computed = *runtime->MakeEvent(), copied_out = *runtime->MakeEvent();
  const auto await = [&](Wait which, DeviceStream& stream, const ReadyEvent& event) {
    if (which != left_out) stream.Await(event);
  };
  const auto number = [](int round, int i) { return 100.0f * static_cast<float>(round) + static_cast<float>(i); };
  bool right = true;
  for (int round = 0; round < kRounds; ++round) {
    right &= left_out == kHostForCopyIn || runtime->Wait(*copied_in).ok();
    for (int i = 0; i < kNumbers; ++i) Floats(in)[i] = number(round, i);
    await(kCopyInForKernel, *copies_in, *computed);  // the kernel of the round before has read x
    copies_in->Copy(x.data(), in.data(), kBytes);
    copies_in->Record(*copied_in);
    await(kKernelForCopyIn, *kernels, *copied_in);
    await(kKernelForCopyOut, *kernels, *copied_out);  // that of the round before, which has read y
    Launch<Add>(*kernels, {.block = {kNumbers}}, AddArguments{Floats(x), Floats(y), 0.5f});
    kernels->Record(*computed);
    await(kCopyOutForKernel, *copies_out, *computed);
    copies_out->Copy(Floats(out) + round * kNumbers, y.data(), kBytes);
    copies_out->Record(*copied_out);
  }
  right &= left_out == kHostForCopyOut || runtime->Wait(*copied_out).ok();
  for (int i = 0; i < kRounds * kNumbers; ++i) right &= Floats(out)[i] == number(i / kNumbers, i % kNumbers) + 0.5f;
  EXPECT_EQ(runtime->Synchronize(), absl::OkStatus());
  return right;
}

TEST(Streams, APipelineWithItsWaitsIsRightForEverySeed) {
  for (uint64_t seed = 0; seed < 100; ++seed) EXPECT_TRUE(PipelineIsRight(kNone, seed)) << seed;
}

class MissingWait : public testing::TestWithParam<Wait> {};
INSTANTIATE_TEST_SUITE_P(Waits, MissingWait, testing::Range(kKernelForCopyIn, kNone, 1),
                         [](const auto& info) { return kWaitNames[info.param]; });

TEST_P(MissingWait, ShowsInTheResult) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) wrong += !PipelineIsRight(GetParam(), seed);
  EXPECT_GT(wrong, 5);
}

// A product of a library between two copies, which have a stream of their own. What the host reads at the end.
float ProductAmongCopies(bool awaits_in, bool awaits_out, uint64_t seed) {
  const auto runtime = emulation::MakeEmulatedRuntime({.seed = seed});
  EXPECT_EQ(runtime->OpenMatmul(), absl::OkStatus());
  constexpr uint16_t kThree = 0x4200, kHalf = 0x3800;
  const Buffer in = *runtime->Allocate(32, MemoryKind::kPinned), out = *runtime->Allocate(4, MemoryKind::kPinned);
  const Buffer x = *runtime->Allocate(32, MemoryKind::kDevice), y = *runtime->Allocate(4, MemoryKind::kDevice);
  auto* const halves = reinterpret_cast<uint16_t*>(in.data());
  for (int i = 0; i < 16; ++i) halves[i] = i < 8 ? kThree : kHalf;
  const auto copies = *runtime->MakeStream(), products = *runtime->MakeStream();
  const auto copied = *runtime->MakeEvent(), multiplied = *runtime->MakeEvent();
  copies->Copy(x.data(), in.data(), 32);
  copies->Record(*copied);
  if (awaits_in) products->Await(*copied);
  const auto* const a = reinterpret_cast<const uint16_t*>(x.data());
  products->Multiply({.a = a, .b = a + 8, .c = Floats(y), .rows = 1, .columns = 1, .inner = 8});
  products->Record(*multiplied);
  if (awaits_out) copies->Await(*multiplied);
  copies->Copy(out.data(), y.data(), 4);
  EXPECT_EQ(copies->Synchronize(), absl::OkStatus());
  return *Floats(out);
}

TEST(Streams, AProductHasToBeWaitedForAsACopyHas) {
  int without_in = 0, without_out = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    EXPECT_EQ(ProductAmongCopies(true, true, seed), 12) << seed;
    without_in += ProductAmongCopies(false, true, seed) != 12;
    without_out += ProductAmongCopies(true, false, seed) != 12;
  }
  EXPECT_GT(without_in, 5);
  EXPECT_GT(without_out, 5);
}

class Work : public testing::Test {
 protected:
  Buffer Allocate(MemoryKind kind, size_t bytes = kBytes) { return *runtime_->Allocate(bytes, kind); }

  std::unique_ptr<emulation::EmulatedRuntime> runtime_ = emulation::MakeEmulatedRuntime({});
  std::unique_ptr<DeviceStream> stream_ = *runtime_->MakeStream();
};

TEST_F(Work, RunsNotBeforeItIsWaitedFor) {
  const Buffer memory = Allocate(MemoryKind::kManaged);
  std::memset(memory.data(), 0, kBytes);
  Launch<Add>(*stream_, {.block = {kNumbers}}, AddArguments{Floats(memory), Floats(memory), 1});
  EXPECT_FALSE(stream_->Idle());
  EXPECT_EQ(Floats(memory)[3], 1);
  EXPECT_TRUE(stream_->Idle());
}

TEST_F(Work, ADestinationHoldsNothingUntilTheCopyHasRun) {
  const Buffer from = Allocate(MemoryKind::kDevice), to = Allocate(MemoryKind::kPinned);
  stream_->Fill(from.data(), 0, kBytes);
  stream_->Copy(to.data(), from.data(), kBytes);
  std::memset(to.data(), 0, kBytes);
  const auto event = *runtime_->MakeEvent();
  EXPECT_TRUE(event->Ready());
  stream_->Record(*event);
  stream_->Copy(to.data(), from.data(), kBytes);
  EXPECT_FALSE(event->Ready());
  EXPECT_EQ(runtime_->Wait(*event), absl::OkStatus());
  EXPECT_TRUE(event->Ready());
  EXPECT_NE(Floats(to)[0], 0) << "the second copy has begun";
  EXPECT_EQ(stream_->Synchronize(), absl::OkStatus());
  EXPECT_EQ(Floats(to)[0], 0);
}

TEST_F(Work, TheHostCannotFollowADevicesPointer) {
  const Buffer memory = Allocate(MemoryKind::kDevice);
  EXPECT_DEATH(Floats(memory)[0] = 1, "");
}

TEST_F(Work, CopiesStayWithinAllocations) {
  const Buffer small = Allocate(MemoryKind::kDevice, 16), large = Allocate(MemoryKind::kPinned);
  stream_->Copy(small.data(), large.data(), 17);
  EXPECT_THAT(std::string(stream_->Synchronize().message()), HasSubstr("Copy: 17 bytes at 0x"));
}

TEST_F(Work, MemoryThatWasReturnedIsKnownNoMore) {
  const Buffer x = Allocate(MemoryKind::kManaged);
  {
    const Buffer y = Allocate(MemoryKind::kDevice);
    Launch<Add>(*stream_, {.block = {kNumbers}}, AddArguments{Floats(x), Floats(y), 1});
  }
  const absl::Status status = stream_->Synchronize();
  EXPECT_THAT(std::string(status.message()), HasSubstr("which no allocation holds"));
  EXPECT_EQ(runtime_->Synchronize(), status) << "a fault stays";
  runtime_->TakeFaults();
  EXPECT_EQ(runtime_->Synchronize(), absl::OkStatus());
}

TEST_F(Work, ProductsStayWithinAllocations) {
  const Buffer halves = Allocate(MemoryKind::kDevice, 32), y = Allocate(MemoryKind::kDevice, 4);
  const auto* const a = reinterpret_cast<const uint16_t*>(halves.data());
  stream_->Multiply({.a = a, .b = a + 8, .c = Floats(y), .rows = 1, .columns = 2, .inner = 8});
  EXPECT_THAT(std::string(stream_->Synchronize().message()), HasSubstr("Multiply: 8 bytes at 0x"));
}

TEST_F(Work, DeviceMemoryHasAnEnd) {
  const auto small = emulation::MakeEmulatedRuntime({.attributes = {.memory_bytes = 1 << 20}});
  EXPECT_EQ(small->Allocate((1 << 20) + 1, MemoryKind::kDevice).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(small->Allocate(1 << 20, MemoryKind::kDevice).status(), absl::OkStatus());
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
