// What is said of CUDA devices and what they do, where there are some and where there are none.
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "core/kernels/backend.h"
#include "core/kernels/cuda/device.h"
#include "core/kernels/cuda/native_runtime.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace moed {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

CudaDevice Device(std::string name, int major, int minor, uint64_t gibibytes, bool unified) {
  return {std::move(name), major, minor, gibibytes << 30, unified, {.driver = 12080, .runtime = 12060}};
}

TEST(CudaDevice, IsDescribedInOneLine) {
  EXPECT_EQ(Describe(std::vector{Device("Orin", 8, 7, 30, true)}),
            "Orin (compute capability 8.7, 30.0 GiB of unified memory, driver 12.8, runtime 12.6)");
  EXPECT_THAT(Describe(std::vector{Device("A", 9, 0, 80, false), Device("B", 10, 3, 8, false)}),
              testing::AllOf(StartsWith("A (compute capability 9.0, 80.0 GiB of its own memory,"),
                             HasSubstr(", B (compute capability 10.3, 8.0 GiB of its own memory,")));
}

TEST(CudaDevice, VersionsAreThoseOfTheToolkits) {
  EXPECT_EQ(CudaVersion(0), "none");
  EXPECT_EQ(CudaVersion(11080), "11.8");
  EXPECT_EQ(CudaVersion(12060), "12.6");
  EXPECT_EQ(CudaVersion(13000), "13.0");
}

TEST(CudaDevice, TheBackendIsRefusedWithTheDeviceOrTheReason) {
  InlineExecutor executor;
  const absl::Status refused = MakeComputeBackend("cuda", executor).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  const std::string message(refused.message());
  if (const auto devices = FindCudaDevices(); devices.ok()) {
    ASSERT_FALSE(devices->empty());
    for (const CudaDevice& device : *devices) {
      EXPECT_NE(device.name, "");
      EXPECT_GT(device.memory_bytes, 0);
    }
    EXPECT_THAT(message, testing::AllOf(HasSubstr("no CUDA kernels"), EndsWith(Describe(*devices))));
  } else {
    const std::string start = "no CUDA device: ";
    EXPECT_THAT(message, StartsWith(start));
    EXPECT_GT(message.size(), start.size()) << "a reason is wanted";
    EXPECT_EQ(message, devices.status().message());
  }
}

// Where there is a device: two streams, an event between, memories of three kinds.
TEST(CudaRuntime, CopiesOnTwoStreamsOrSaysThatThereIsNoDevice) {
  const auto made = MakeCudaRuntime();
  if (!made.ok()) {
    EXPECT_EQ(made.status(), FindCudaDevices().status());
    return;
  }
  DeviceRuntime& runtime = **made;
  constexpr size_t kBytes = 1 << 20;
  const Buffer in = *runtime.Allocate(kBytes, MemoryKind::kPinned), out = *runtime.Allocate(kBytes, MemoryKind::kManaged);
  const Buffer between = *runtime.Allocate(kBytes, MemoryKind::kDevice);
  const auto first = *runtime.MakeStream(), second = *runtime.MakeStream();
  const auto copied = *runtime.MakeEvent();
  for (size_t i = 0; i < kBytes; ++i) in.data()[i] = static_cast<std::byte>(i * 7);
  first->Fill(between.data(), 1, kBytes);
  first->Copy(between.data(), in.data(), kBytes);
  first->Record(*copied);
  second->Await(*copied);
  second->Copy(out.data(), between.data(), kBytes);
  ASSERT_EQ(second->Synchronize(), absl::OkStatus());
  EXPECT_TRUE(second->Idle());
  EXPECT_TRUE(copied->Ready());
  EXPECT_EQ(std::memcmp(out.data(), in.data(), kBytes), 0);
  EXPECT_EQ(runtime.Synchronize(), absl::OkStatus());
}

}  // namespace
}  // namespace moed
