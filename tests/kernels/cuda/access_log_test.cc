// The log's figures, on kernels whose figures are known by hand.
#include "core/kernels/cuda/emulation/access_log.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/emulated_device.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

using emulation::KernelTraffic;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

struct Arguments {
  Global<const float> x;
  Global<float> y;
  int stride = 1;
};

class AccessLog : public testing::Test {
 protected:
  template <auto kKernel>
  KernelTraffic Traffic(int stride = 1, unsigned threads = 64, bool on_device = false) {
    EmulatedDevice device({.seed = 1, .log = true});
    const auto x = device.Numbers<float>(64 * 64, 1.0f);
    const auto y = device.Numbers<float>(64 * 64);
    const Buffer own = device.runtime().Allocate(x.size_bytes(), MemoryKind::kDevice).value();
    const float* const from = on_device ? reinterpret_cast<const float*>(own.data()) : x.data();
    const LaunchShape shape = {.block = {threads}, .shared_bytes = 16 << 10};
    EXPECT_THAT((device.Run<kKernel>(shape, Arguments{from, y.data(), stride})), IsEmpty());
    const auto traffic = device.runtime().traffic();
    EXPECT_EQ(traffic.size(), 1);
    return traffic.begin()->second;
  }
};

__global__ void Strided(Arguments a) { a.y[threadIdx.x] = a.x[static_cast<int>(threadIdx.x) * a.stride]; }

TEST_F(AccessLog, NeighbouringLanesMoveWhatTheyNeed) {
  const KernelTraffic traffic = Traffic<Strided>(1);
  EXPECT_EQ(traffic.loads.requests, 2);
  EXPECT_EQ(traffic.loads.sectors_moved, 8);
  EXPECT_EQ(traffic.loads.ratio(), 1.0);
  EXPECT_EQ(traffic.stores.ratio(), 1.0);
  EXPECT_THAT(traffic.loads.bytes_by_width, ElementsAre(Pair(4, 256)));
}

TEST_F(AccessLog, StridesMoveMore) {
  EXPECT_EQ(Traffic<Strided>(2).loads.ratio(), 2.0);
  EXPECT_EQ(Traffic<Strided>(8).loads.ratio(), 8.0);
  EXPECT_EQ(Traffic<Strided>(64).loads.ratio(), 8.0);
  EXPECT_EQ(Traffic<Strided>(0).loads.ratio(), 1.0);  // one number for all
}

TEST_F(AccessLog, MemoryOfTheHostIsKnown) {
  EXPECT_EQ(Traffic<Strided>().loads_of_host.requests, 2);
  EXPECT_EQ(Traffic<Strided>(1, 64, true).loads_of_host.requests, 0);
}

// Four bytes before a sector's end on: one more sector.
__global__ void Shifted(Arguments a) { a.y[threadIdx.x] = a.x[threadIdx.x + 7]; }
TEST_F(AccessLog, AShiftMovesOneSectorMore) { EXPECT_EQ(Traffic<Shifted>(1, 32).loads.ratio(), 1.25); }

__global__ void Wide(Arguments a) { Store(a.y, threadIdx.x, LoadOnce<float4>(a.x, threadIdx.x)); }
TEST_F(AccessLog, WidthsAreThoseOfTheAccesses) {
  const KernelTraffic traffic = Traffic<Wide>();
  EXPECT_THAT(traffic.loads.bytes_by_width, ElementsAre(Pair(16, 1024)));
  EXPECT_EQ(traffic.loads.sectors_moved, 32);
  EXPECT_EQ(traffic.loads.ratio(), 1.0);
}

// The lanes of a loop's passes belong together, pass by pass, though each runs alone.
__global__ void Loop(Arguments a) {
  float sum = 0;
  for (int i = 0; i < 8; ++i) sum += a.x[i * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)];
  a.y[threadIdx.x] = sum;
}
TEST_F(AccessLog, RequestsAreThoseOfALoopsPasses) {
  const KernelTraffic traffic = Traffic<Loop>();
  EXPECT_EQ(traffic.loads.requests, 2 * 8);
  EXPECT_EQ(traffic.loads.ratio(), 1.0);
}

__global__ void Banks(Arguments a) {
  SharedMemory<float>()[static_cast<int>(threadIdx.x) * a.stride] = 1;
  __syncthreads();
  a.y[threadIdx.x] = SharedMemory<float>()[static_cast<int>(threadIdx.x) * a.stride];
}
TEST_F(AccessLog, BanksOfSharedMemory) {
  const auto ways = [&](int stride) { return Traffic<Banks>(stride).shared.worst_ways; };
  EXPECT_EQ(ways(1), 1);
  EXPECT_EQ(ways(2), 2);
  EXPECT_EQ(ways(3), 1);
  EXPECT_EQ(ways(8), 8);
  EXPECT_EQ(ways(32), 32);
  EXPECT_EQ(ways(33), 1);
  const KernelTraffic traffic = Traffic<Banks>(32);
  EXPECT_EQ(traffic.shared.requests, 4);
  EXPECT_EQ(traffic.shared.passes_needed, 4);
  EXPECT_EQ(traffic.shared.passes, 4 * 32);
}

__global__ void OneWord(Arguments a) {
  if (threadIdx.x == 0) SharedMemory<float>()[5] = 1;
  __syncthreads();
  a.y[threadIdx.x] = SharedMemory<float>()[5];
}
TEST_F(AccessLog, AWordThatAllLanesWantIsOnePass) { EXPECT_EQ(Traffic<OneWord>().shared.worst_ways, 1); }

__global__ void Quarters(Arguments a) {
  Store(SharedMemory<float>(), threadIdx.x, make_float4(1, 2, 3, 4));
  __syncwarp();
  a.y[threadIdx.x] = Load<float4>(SharedMemory<float>(), threadIdx.x).y;
}
TEST_F(AccessLog, WideAccessesOfSharedMemoryTakeAPassAQuarter) {
  const KernelTraffic traffic = Traffic<Quarters>(1, 32);
  EXPECT_EQ(traffic.shared.passes_needed, 8);
  EXPECT_EQ(traffic.shared.passes, 8);
  EXPECT_EQ(traffic.shared.worst_ways, 1);
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
