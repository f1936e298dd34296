// Kernels that keep the rules: what they compute in emulation is what a device computes, for every order of threads.
#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/emulated_device.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

using ::testing::IsEmpty;

struct ScaleArguments {
  Global<float> x;
  float scale;
  int n;
};
__global__ void Scale(ScaleArguments a) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < a.n) a.x[i] *= a.scale;
}

TEST(Emulation, RunsEveryThreadOfEveryBlockOnce) {
  EmulatedDevice device;
  const auto x = device.Numbers<float>(1000);
  std::iota(x.begin(), x.end(), 0.0f);
  EXPECT_THAT((device.Run<Scale>({.grid = {Blocks(1000, 256)}, .block = {256}}, ScaleArguments{x.data(), 2, 1000})), IsEmpty());
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(x[i], 2.0f * i);
}

struct PlacesArguments {
  Global<uint4> places;
};
__global__ void Places(PlacesArguments a) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  Store(a.places, block * blockDim.count() + thread, make_uint4(threadIdx.y, threadIdx.z, blockIdx.y, blockIdx.z));
}

TEST(Emulation, BlocksAndGridsHaveThreeDimensions) {
  EmulatedDevice device;
  const auto places = device.Numbers<uint4>(2 * 3 * 2 * 64);
  EXPECT_THAT((device.Run<Places>({.grid = {2, 3, 2}, .block = {8, 4, 2}}, PlacesArguments{places.data()})), IsEmpty());
  const uint4 last = places.back();
  EXPECT_EQ((std::vector{last.x, last.y, last.z, last.w}), (std::vector{3u, 1u, 2u, 1u}));
}

// The sum of a block's numbers: within warps by exchanges, among them through shared memory. Rounds whatever the order.
struct SumArguments {
  Global<const float> x;
  Global<float> sums;
};
__global__ void Sum(SumArguments a) {
  const Shared<float> of_warps = SharedMemory<float>();
  float sum = a.x[blockIdx.x * blockDim.x + threadIdx.x];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float all = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) all += of_warps[warp];
  a.sums[blockIdx.x] = all;
}

std::vector<uint32_t> SumBits(uint64_t seed, bool watch) {
  EmulatedDevice device({.seed = seed, .watch = watch});
  const auto x = device.Numbers<float>(8 * 1024);
  std::mt19937 random(1);
  for (float& number : x) number = std::normal_distribution<float>()(random);
  const auto sums = device.Numbers<float>(8);
  const LaunchShape shape = {.grid = {8}, .block = {1024}, .shared_bytes = 32 * sizeof(float)};
  EXPECT_THAT((device.Run<Sum>(shape, SumArguments{x.data(), sums.data()})), IsEmpty());
  std::vector<uint32_t> bits;
  for (const float sum : sums) bits.push_back(std::bit_cast<uint32_t>(sum));
  return bits;
}

TEST(Emulation, AKernelWithoutRacesGivesTheSameBitsInEveryOrder) {
  const std::vector<uint32_t> expected = SumBits(0, true);
  for (uint64_t seed = 1; seed < 8; ++seed) {
    EXPECT_EQ(SumBits(seed, true), expected);
    EXPECT_EQ(SumBits(seed, false), expected);
  }
}

struct OrderArguments {
  Global<int> next;
  Global<int> order;
};
__global__ void Order(OrderArguments a) {
  const int mine = a.next[0];
  a.next[0] = mine + 1;
  a.order[mine] = static_cast<int>(threadIdx.x);
}

std::vector<int> OrderOf(uint64_t seed) {
  EmulatedDevice device({.seed = seed, .watch = false});
  const auto next = device.Numbers<int>(1);
  const auto order = device.Numbers<int>(256);
  EXPECT_THAT((device.Run<Order>({.block = {256}}, OrderArguments{next.data(), order.data()})), IsEmpty());
  return {order.begin(), order.end()};
}

TEST(Emulation, TheOrderOfThreadsIsTheSeeds) {
  std::vector<int> sorted = OrderOf(5);
  EXPECT_EQ(sorted, OrderOf(5));
  EXPECT_NE(sorted, OrderOf(6));
  std::sort(sorted.begin(), sorted.end());
  for (int i = 0; i < 256; ++i) EXPECT_EQ(sorted[i], i);
}

struct ExchangeArguments {
  Global<int> got;  // (8, 32)
  Global<uint64_t> wide;
};
__global__ void Exchange(ExchangeArguments a) {
  constexpr uint32_t kAll = 0xffffffffu;
  const int lane = static_cast<int>(threadIdx.x);
  const Global<int> got = a.got + lane;
  got[0 * 32] = __shfl_sync(kAll, lane, 7);
  got[1 * 32] = __shfl_sync(kAll, lane, 3, 8);
  got[2 * 32] = __shfl_xor_sync(kAll, lane, 5);
  got[3 * 32] = __shfl_down_sync(kAll, lane, 4);
  got[4 * 32] = __shfl_up_sync(kAll, lane, 4, 16);
  got[5 * 32] = static_cast<int>(__ballot_sync(kAll, lane % 3 == 0));
  got[6 * 32] = __any_sync(kAll, lane == 31) + 2 * __any_sync(kAll, lane == 32);
  got[7 * 32] = __all_sync(kAll, lane < 32) + 2 * __all_sync(kAll, lane < 31);
  a.wide[lane] = __shfl_xor_sync(kAll, (uint64_t{1} << 40) + lane, 1);
}

TEST(Emulation, LanesExchange) {
  EmulatedDevice device({.seed = 3});
  const auto got = device.Numbers<int>(8 * 32);
  const auto wide = device.Numbers<uint64_t>(32);
  EXPECT_THAT((device.Run<Exchange>({.block = {32}}, ExchangeArguments{got.data(), wide.data()})), IsEmpty());
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(got[lane], 7);
    EXPECT_EQ(got[32 + lane], lane / 8 * 8 + 3);
    EXPECT_EQ(got[64 + lane], lane ^ 5);
    EXPECT_EQ(got[96 + lane], lane < 28 ? lane + 4 : lane);
    EXPECT_EQ(got[128 + lane], lane % 16 >= 4 ? lane - 4 : lane);
    EXPECT_EQ(got[160 + lane], 0x49249249);
    EXPECT_EQ(got[192 + lane], 1);
    EXPECT_EQ(got[224 + lane], 1);
    EXPECT_EQ(wide[lane], (uint64_t{1} << 40) + (lane ^ 1));
  }
}

// Halves of a warp that go apart exchange among themselves.
__global__ void Halves(ScaleArguments a) {
  const bool upper = threadIdx.x >= 16;
  float x = a.x[threadIdx.x];
  if (upper) {
    x = __shfl_sync(0xffff0000u, x, 20);
  } else {
    x = __shfl_sync(0x0000ffffu, x, 2);
    x += __shfl_xor_sync(0x0000ffffu, x, 1);
  }
  __syncwarp();
  a.x[threadIdx.x] = x;
}

TEST(Emulation, LanesThatAMaskNamesNeedNoOthers) {
  EmulatedDevice device({.seed = 2});
  const auto x = device.Numbers<float>(32);
  std::iota(x.begin(), x.end(), 0.0f);
  EXPECT_THAT((device.Run<Halves>({.block = {32}}, ScaleArguments{x.data(), 1, 32})), IsEmpty());
  for (int i = 0; i < 32; ++i) EXPECT_EQ(x[i], i < 16 ? 4 : 20);
}

// Whoever waits runs what is waited for, on its own thread.
TEST(Emulation, LaunchesRunOnAnyThreadOfTheHost) {
  EmulatedDevice device({.seed = 4});
  const auto x = device.Numbers<float>(8 * 1024, 1.0f);
  const auto sums = device.Numbers<float>(8);
  const LaunchShape shape = {.grid = {8}, .block = {1024}, .shared_bytes = 32 * sizeof(float)};
  for (int i = 0; i < 4; ++i) {
    std::thread([&] { EXPECT_THAT((device.Run<Sum>(shape, SumArguments{x.data(), sums.data()})), IsEmpty()); }).join();
    for (float& sum : sums) EXPECT_EQ(std::exchange(sum, 0.0f), 1024);
  }
}

TEST(Emulation, Arithmetic) {
  EXPECT_EQ(__dp4a(static_cast<int>(0x80ff7f02), static_cast<int>(0x7f02ff03), 10), -128 * 127 - 2 - 127 + 6 + 10);
  EXPECT_EQ(__dp4a(0x80ff7f02u, 0x7f02ff03u, 10u), 128u * 127 + 255 * 2 + 127 * 255 + 6 + 10);
  EXPECT_EQ(__byte_perm(0x33221100, 0x77665544, 0x7250), 0x77225500u);
  EXPECT_EQ(__float2int_rn(2.5f), 2);
  EXPECT_EQ(__float2int_rn(-3.5f), -4);
  EXPECT_EQ(__float2int_rn(1e20f), INT32_MAX);
  EXPECT_EQ(__ffs(0x40) + __popc(0xf0) + __clz(1), 7 + 4 + 31);
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
