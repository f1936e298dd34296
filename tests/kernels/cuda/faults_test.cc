// Kernels that break a rule are told, each beside one that does not; and where it was broken is said.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/emulated_device.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

using emulation::Fault;
using emulation::FaultKind;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

auto Is(FaultKind kind) { return ElementsAre(Field("kind", &Fault::kind, kind)); }

struct Arguments {
  Global<float> x;
  bool wrong;
  int n = 0;
};

class Faults : public testing::TestWithParam<uint64_t> {
 protected:
  template <auto kKernel>
  std::vector<Fault> Run(const LaunchShape& shape, bool wrong, int n = 0) {
    return device_.Run<kKernel>(shape, Arguments{x_.data(), wrong, n});
  }
  // No fault where the kernel is right, faults of this kind alone where it is wrong; the first one.
  template <auto kKernel>
  Fault Compare(const LaunchShape& shape, FaultKind kind) {
    EXPECT_THAT(Run<kKernel>(shape, false), IsEmpty());
    const std::vector<Fault> faults = Run<kKernel>(shape, true);
    EXPECT_THAT(faults, Is(kind));
    return faults.empty() ? Fault{} : faults[0];
  }

  EmulatedDevice device_{{.seed = GetParam()}};
  std::span<float> x_ = device_.Numbers<float>(256, 1.0f);
};
INSTANTIATE_TEST_SUITE_P(Seeds, Faults, testing::Range<uint64_t>(0, 8));

constexpr LaunchShape kTwoWarps = {.block = {64}, .shared_bytes = 256};
constexpr LaunchShape kOneWarp = {.block = {32}, .shared_bytes = 128};

__global__ void ReturnBeforeBarrier(Arguments a) {
  if (a.wrong && threadIdx.x == 40) return;
  __syncthreads();
}
TEST_P(Faults, AThreadReturnsWhileOthersWait) {
  const Fault fault = Compare<ReturnBeforeBarrier>(kTwoWarps, FaultKind::kDivergence);
  EXPECT_EQ(fault.kernel, "ReturnBeforeBarrier");
  EXPECT_THAT(fault.text, HasSubstr("waits at the barrier of faults_test.cc:"));
  EXPECT_THAT(fault.text, HasSubstr("thread (40,0,0) has returned"));
}

__global__ void TwoBarriers(Arguments a) {
  if (a.wrong && threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
TEST_P(Faults, ThreadsWaitAtTwoBarriers) {
  EXPECT_THAT(Compare<TwoBarriers>(kTwoWarps, FaultKind::kDivergence).text, HasSubstr("others wait at another barrier"));
}

__global__ void BarrierAndVote(Arguments a) {
  if (a.wrong && threadIdx.x == 3) __syncthreads();
  __ballot_sync(0xffffffffu, true);
}
TEST_P(Faults, ALaneWaitsForTheBlockAndOthersForTheLane) {
  EXPECT_THAT(Compare<BarrierAndVote>(kTwoWarps, FaultKind::kDivergence).text, HasSubstr("nobody comes to where it waits"));
}

__global__ void Masks(Arguments a) {
  const bool odd_one = a.wrong && threadIdx.x == 0;
  __ballot_sync(odd_one ? 0x3u : 0xffffffffu, true);
}
TEST_P(Faults, LanesCallWithMasksThatDiffer) { Compare<Masks>(kOneWarp, FaultKind::kDivergence); }

__global__ void Calls(Arguments a) {
  if (a.wrong && threadIdx.x == 9) {
    __syncwarp();
  } else {
    __shfl_sync(0xffffffffu, 1, 0);
  }
  if (!a.wrong) __syncwarp();
}
TEST_P(Faults, LanesCallDifferently) {
  EXPECT_THAT(Compare<Calls>(kOneWarp, FaultKind::kDivergence).text, HasSubstr("of the lanes that it names, thread ("));
}

// After a divergence threads go on without each other; what they then wait for or touch is not told as well.
__global__ void LoopOfBarriers(Arguments a) {
  const Shared<float> shared = SharedMemory<float>();
  for (int i = 0; i < 100; ++i) {
    if (a.wrong && threadIdx.x == 1 && i == 50) return;
    __syncthreads();
    shared[threadIdx.x] = static_cast<float>(i);
    __syncthreads();
    a.x[threadIdx.x] = shared[63 - threadIdx.x];
  }
}
TEST_P(Faults, AreToldOnceAndTheLaunchEnds) { Compare<LoopOfBarriers>(kTwoWarps, FaultKind::kDivergence); }

// Barriers are held to the rules even where accesses are not watched.
TEST(UnwatchedFaults, AThreadReturnsWhileOthersWait) {
  EmulatedDevice device({.watch = false});
  const auto x = device.Numbers<float>(64);
  EXPECT_THAT((device.Run<ReturnBeforeBarrier>(kTwoWarps, Arguments{x.data(), false})), IsEmpty());
  EXPECT_THAT((device.Run<ReturnBeforeBarrier>(kTwoWarps, Arguments{x.data(), true})), Is(FaultKind::kDivergence));
}

__global__ void FromAnotherHalf(Arguments a) {
  const unsigned mask = threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u;
  const float got = __shfl_sync(mask, 1.0f, a.wrong ? 3 : static_cast<int>(threadIdx.x));
  if (got > 1) a.x[0] = got;
}
TEST_P(Faults, AShuffleReadsALaneThatIsNotNamed) {
  const Fault fault = Compare<FromAnotherHalf>(kOneWarp, FaultKind::kInactiveLane);
  EXPECT_GE(fault.thread.x, 16);
  EXPECT_THAT(fault.text, HasSubstr("from lane 3, which mask ffff0000 does not name"));
}

__global__ void NotNamed(Arguments a) {
  if (threadIdx.x < 16 || a.wrong) __syncwarp(0x0000ffffu);
}
TEST_P(Faults, ALaneCallsWithAMaskThatDoesNotNameIt) { Compare<NotNamed>(kOneWarp, FaultKind::kInactiveLane); }

__global__ void ReturnedLane(Arguments a) {
  if (a.wrong && threadIdx.x == 31) return;
  __shfl_down_sync(0xffffffffu, 1, 1);
}
TEST_P(Faults, AShuffleNamesALaneThatHasReturned) {
  EXPECT_THAT(Compare<ReturnedLane>(kOneWarp, FaultKind::kDivergence).text, HasSubstr("thread (31,0,0) has returned"));
}

__global__ void Beyond(Arguments a) {
  if (threadIdx.x == 5) a.x[a.wrong ? 256 : 255] = 1;
}
TEST_P(Faults, AStoreBeyondTheAllocation) {
  const Fault fault = Compare<Beyond>(kOneWarp, FaultKind::kOutOfBounds);
  EXPECT_EQ(fault.thread.x, 5);
  EXPECT_EQ(fault.address, reinterpret_cast<uintptr_t>(x_.data() + 256));
  EXPECT_THAT(fault.text, HasSubstr("Beyond, block (0,0,0), thread (5,0,0): stores 4 bytes at 0x"));
}

__global__ void Across(Arguments a) {
  const float4 four = Load<float4>(a.x, a.wrong ? 64 : 63);
  if (threadIdx.x == 0) a.x[1] = four.w;
}
TEST_P(Faults, ALoadThatEndsBeyondTheAllocation) { Compare<Across>({.block = {32}}, FaultKind::kOutOfBounds); }

__global__ void HostMemory(Arguments a) {
  if (threadIdx.x == 0) a.x[0] = 2;
}
TEST_P(Faults, MemoryThatTheDeviceDoesNotKnow) {
  float of_host[1] = {1};
  EXPECT_THAT((device_.Run<HostMemory>(kOneWarp, Arguments{of_host, false})), Is(FaultKind::kOutOfBounds));
  EXPECT_EQ(of_host[0], 1);
  EXPECT_THAT((device_.Run<HostMemory>(kOneWarp, Arguments{nullptr, false})), Is(FaultKind::kOutOfBounds));
}

__global__ void BeyondShared(Arguments a) { SharedMemory<float>()[a.wrong ? threadIdx.x + 1 : threadIdx.x] = 1; }
TEST_P(Faults, AStoreBeyondSharedMemory) {
  const Fault fault = Compare<BeyondShared>(kOneWarp, FaultKind::kOutOfBounds);
  EXPECT_EQ(fault.thread.x, 31);
  EXPECT_EQ(fault.address, 128);
}

__global__ void Misaligned(Arguments a) {
  const auto bytes = PointerCast<const uint8_t>(a.x);
  a.x[threadIdx.x] = static_cast<float>(Load<uint4>(bytes + (a.wrong ? 8 : 0), 8 + threadIdx.x % 4).x);
}
TEST_P(Faults, AnAccessThatIsNotAligned) { Compare<Misaligned>(kOneWarp, FaultKind::kMisaligned); }

__global__ void NobodyWrote(Arguments a) {
  const Shared<float> shared = SharedMemory<float>();
  if (threadIdx.x != 17 || !a.wrong) shared[threadIdx.x] = 1;
  __syncthreads();
  a.x[threadIdx.x] = shared[threadIdx.x ^ 1];
}
TEST_P(Faults, SharedMemoryThatNobodyWrote) {
  const Fault fault = Compare<NobodyWrote>(kOneWarp, FaultKind::kUninitialised);
  EXPECT_EQ(fault.thread.x, 16);
  EXPECT_EQ(fault.address, 17 * sizeof(float));
}

// What a block leaves in shared memory is not there for the next.
__global__ void OfTheBlockBefore(Arguments a) {
  const Shared<float> shared = SharedMemory<float>();
  if (blockIdx.x == static_cast<unsigned>(a.n) || !a.wrong) shared[threadIdx.x] = 1;
  if (blockIdx.x != static_cast<unsigned>(a.n)) a.x[threadIdx.x + 32 * blockIdx.x] = shared[threadIdx.x];
}
TEST_P(Faults, SharedMemoryOfAnotherBlock) {
  Compare<OfTheBlockBefore>({.grid = {2}, .block = {32}, .shared_bytes = 128}, FaultKind::kUninitialised);
}

__global__ void Nothing(Arguments) {}
TEST_P(Faults, AShapeThatNoDeviceTakes) {
  EXPECT_THAT(Run<Nothing>({.block = {33}}, false), Is(FaultKind::kLaunch));
  EXPECT_THAT(Run<Nothing>({.block = {2048}}, false), Is(FaultKind::kLaunch));
  EXPECT_THAT(Run<Nothing>({.grid = {0}, .block = {32}}, false), Is(FaultKind::kLaunch));
  EXPECT_THAT(Run<Nothing>({.block = {32}, .shared_bytes = 48 * 1024 + 1}, false), Is(FaultKind::kLaunch));
  EXPECT_THAT(Run<Nothing>({.block = {1024}}, false), IsEmpty());
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
