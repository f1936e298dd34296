// Two threads, the same byte, a store among them, no barrier between: told in whatever order the threads run, and nothing else
// is.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/emulated_device.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

using emulation::Fault;
using emulation::FaultKind;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

enum class Barrier { kNone, kWarp, kBlock };
void Wait(Barrier barrier) {
  if (barrier == Barrier::kWarp) __syncwarp();
  if (barrier == Barrier::kBlock) __syncthreads();
}

struct Arguments {
  Global<float> x;
  Barrier barrier;
};

class Races : public testing::TestWithParam<uint64_t> {
 protected:
  template <auto kKernel>
  std::vector<Fault> Run(Barrier barrier, unsigned threads = 64, unsigned blocks = 1) {
    return device_.Run<kKernel>({.grid = {blocks}, .block = {threads}, .shared_bytes = 1024}, Arguments{x_.data(), barrier});
  }
  template <auto kKernel>
  void ExpectRace(Barrier barrier, const char* text, unsigned threads = 64, unsigned blocks = 1) {
    const std::vector<Fault> faults = Run<kKernel>(barrier, threads, blocks);
    ASSERT_THAT(faults, SizeIs(1));
    EXPECT_EQ(faults[0].kind, FaultKind::kRace);
    EXPECT_THAT(faults[0].text, HasSubstr(text));
  }

  EmulatedDevice device_{{.seed = GetParam()}};
  std::span<float> x_ = device_.Numbers<float>(256, 1.0f);
};
INSTANTIATE_TEST_SUITE_P(Seeds, Races, testing::Range<uint64_t>(0, 16));

// Each thread reads what the thread `distance` from it wrote.
template <unsigned kDistance>
__global__ void Neighbours(Arguments a) {
  const Shared<float> shared = SharedMemory<float>();
  shared[threadIdx.x] = static_cast<float>(threadIdx.x);
  Wait(a.barrier);
  const float got = shared[threadIdx.x ^ kDistance];
  Wait(a.barrier);
  shared[threadIdx.x] = got;
}
TEST_P(Races, SharedMemoryWithinAWarp) {
  EXPECT_THAT(Run<Neighbours<1>>(Barrier::kWarp), IsEmpty());
  EXPECT_THAT(Run<Neighbours<1>>(Barrier::kBlock), IsEmpty());
}
TEST_P(Races, SharedMemoryAmongWarps) {
  EXPECT_THAT(Run<Neighbours<32>>(Barrier::kBlock), IsEmpty());
  const std::vector<Fault> faults = Run<Neighbours<32>>(Barrier::kWarp);
  ASSERT_FALSE(faults.empty());
  for (const Fault& fault : faults) EXPECT_THAT(fault.kind, testing::AnyOf(FaultKind::kRace, FaultKind::kUninitialised));
}

// Loads and then stores: nothing uninitialised is read in any order.
template <unsigned kDistance>
__global__ void LoadThenStore(Arguments a) {
  const Global<float> x = a.x;
  const float got = x[threadIdx.x ^ kDistance];
  Wait(a.barrier);
  x[threadIdx.x] = got;
}
TEST_P(Races, GlobalMemoryWithinAWarp) {
  EXPECT_THAT(Run<LoadThenStore<1>>(Barrier::kWarp), IsEmpty());
  EXPECT_THAT(Run<LoadThenStore<1>>(Barrier::kBlock), IsEmpty());
  EXPECT_THAT(Run<LoadThenStore<0>>(Barrier::kNone), IsEmpty());
  ExpectRace<LoadThenStore<1>>(Barrier::kNone, "without a barrier between");
}
TEST_P(Races, GlobalMemoryAmongWarps) {
  EXPECT_THAT(Run<LoadThenStore<32>>(Barrier::kBlock), IsEmpty());
  ExpectRace<LoadThenStore<32>>(Barrier::kWarp, "by thread (");
}

__global__ void SameFloat(Arguments a) {
  if (threadIdx.x % 32 < 2) a.x[a.barrier == Barrier::kNone ? 0 : threadIdx.x] = 1;
}
TEST_P(Races, TwoStores) {
  EXPECT_THAT(Run<SameFloat>(Barrier::kBlock, 32), IsEmpty());
  ExpectRace<SameFloat>(Barrier::kNone, "was stored by thread (", 32);
}

// Bytes of one word are apart.
__global__ void Bytes(Arguments a) {
  PointerCast<uint8_t>(a.x)[threadIdx.x] = 1;
  if (a.barrier == Barrier::kNone && threadIdx.x == 8) Store(a.x, 0, make_float4(1, 2, 3, 4));
}
TEST_P(Races, BytesOfAWord) {
  EXPECT_THAT(Run<Bytes>(Barrier::kBlock), IsEmpty());
  ExpectRace<Bytes>(Barrier::kNone, "byte ");
}

// Of many loads, that of any lane of any warp.
__global__ void ManyLoads(Arguments a) {
  const float first = a.x[0];
  Wait(a.barrier);
  if (threadIdx.x == 70) a.x[0] = first + 1;
}
TEST_P(Races, AStoreAfterManyLoads) {
  EXPECT_THAT(Run<ManyLoads>(Barrier::kBlock, 128), IsEmpty());
  ExpectRace<ManyLoads>(Barrier::kWarp, "loaded", 128);
  ExpectRace<ManyLoads>(Barrier::kNone, "without a barrier between", 128);
}

// The second block also loads before it stores.
__global__ void AmongBlocks(Arguments a) {
  const unsigned mine = a.barrier == Barrier::kNone ? 0 : blockIdx.x * blockDim.x;
  const float got = a.x[mine + threadIdx.x];
  Wait(Barrier::kBlock);
  if (blockIdx.x == 1) a.x[mine + threadIdx.x] = got;
}
TEST_P(Races, AmongBlocksNoBarrierHelps) {
  EXPECT_THAT(Run<AmongBlocks>(Barrier::kBlock, 64, 2), IsEmpty());
  ExpectRace<AmongBlocks>(Barrier::kNone, "by a thread of block (", 64, 2);
}

TEST_P(Races, LaunchesOfAStreamFollowEachOther) {
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Run<LoadThenStore<1>>(Barrier::kBlock), IsEmpty());
}

// An exchange of values orders no memory.
__global__ void ShuffleIsNoBarrier(Arguments a) {
  SharedMemory<float>()[threadIdx.x] = 1;
  __ballot_sync(0xffffffffu, true);
  if (a.barrier == Barrier::kWarp) __syncwarp();
  a.x[threadIdx.x] = SharedMemory<float>()[threadIdx.x ^ 1];
}
TEST_P(Races, ExchangesOrderNoMemory) {
  EXPECT_THAT(Run<ShuffleIsNoBarrier>(Barrier::kWarp), IsEmpty());
  ExpectRace<ShuffleIsNoBarrier>(Barrier::kNone, "was stored by thread (");
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
