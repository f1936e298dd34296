// What is said of CUDA devices and what they do, where there are some and where there are none.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/kernels/backend.h"
#include "core/kernels/cuda/device.h"
#include "core/kernels/cuda/native_runtime.h"
#include "core/kernels/cuda_row.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace moed {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

CudaDevice Device(std::string name, int major, int minor, uint64_t gibibytes, bool unified) {
  return {std::move(name), major, minor, gibibytes << 30, unified, true, {.driver = 12080, .runtime = 12060}};
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

struct KernelsCase {
  const char* what;
  int major, minor;
  const char* architectures;
  const char* refused_with;  // "": kernels run
};

TEST(CudaDevice, KernelsRunWhereTheyAreCodeForItOrPtx) {
  for (const KernelsCase& c : std::vector<KernelsCase>{
           {"its own", 9, 0, "87-real,90", ""},
           {"Orin's own", 8, 7, "87-real,90", ""},
           {"made of PTX", 12, 0, "87-real,90", ""},
           {"made of PTX alone", 8, 6, "80-virtual", ""},
           {"of a lower minor number", 8, 9, "80-real,86-real", ""},
           {"of a higher minor number", 8, 0, "86-real", "-DMOED_CUDA_ARCHITECTURES=80"},
           {"of another major number", 10, 0, "90-real", "-DMOED_CUDA_ARCHITECTURES=100"},
           {"of PTX above it", 8, 6, "90", "but for 90; build it with cmake -DMOED_CUDA_ARCHITECTURES=86"},
           {"Orin and code of cards", 8, 7, "80-real", "-DMOED_CUDA_ARCHITECTURES=87"},
           {"a card and Orin's code", 8, 9, "87-real", "-DMOED_CUDA_ARCHITECTURES=89"},
           {"none", 9, 0, "", "no CUDA kernels for X (compute capability 9.0"},
           {"below what moed asks", 7, 5, "75-virtual", "compute capability 8.0 is needed"},
           {"below, and no kernels", 7, 5, "", "compute capability 8.0 is needed"},
       }) {
    CudaDevice device = Device("X", c.major, c.minor, 8, false);
    const absl::Status status = CheckKernelsRunOn(device, c.architectures);
    if (std::string_view(c.refused_with).empty()) {
      EXPECT_EQ(status, absl::OkStatus()) << c.what;
    } else {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << c.what;
      EXPECT_THAT(std::string(status.message()), HasSubstr(c.refused_with)) << c.what;
    }
  }
}

// MOED_CUDA_ARCHITECTURES' default: code for all of 8.x and for 9.0, PTX for what came later.
TEST(CudaDevice, TheDefaultRunsOnAllThatAreTaken) {
  for (const auto& [major, minor] : {std::pair(8, 0), {8, 6}, {8, 7}, {8, 9}, {9, 0}, {10, 0}, {10, 1}, {11, 0}, {12, 0}}) {
    CudaDevice device = Device("X", major, minor, 8, false);
    EXPECT_EQ(CheckKernelsRunOn(device, "80-real,87-real,90"), absl::OkStatus()) << major << "." << minor;
    device.versions = {.driver = 12040, .runtime = 12060};  // compiles no PTX of the toolkit's
    EXPECT_EQ(CheckKernelsRunOn(device, "80-real,87-real,90").ok(), major < 10) << major << "." << minor;
  }
}

// Kernels that do not wait for the launch before must not be let in while it runs, whichever device they run on.
TEST(CudaDevice, LaunchesJoinWhereTheImageThatRunsWaits) {
  struct Case {
    int major, minor;
    const char* architectures;
    bool join;
  };
  for (const Case& c : std::vector<Case>{
           {9, 0, "80-real,87-real,90", true},
           {12, 0, "80-real,87-real,90", true},
           {8, 6, "80-real,87-real,90", false},
           {9, 0, "80", false},
           {9, 0, "80-virtual,87-real,89", false},
           {9, 0, "80-virtual,90-virtual", true},
           {12, 0, "90-virtual,80-virtual", true},
           {10, 0, "80-virtual,90-real", false},
           {9, 0, "80-virtual,90-real", true},
           {10, 0, "90-virtual,100-real", true},
       }) {
    EXPECT_EQ(KernelsJoinLaunches(Device("X", c.major, c.minor, 8, false), c.architectures), c.join)
        << c.major << "." << c.minor << " of " << c.architectures;
  }
}

TEST(CudaDevice, ADriverOlderThanTheToolkitRunsItsCodeAndNotItsPtx) {
  CudaDevice device = Device("X", 9, 0, 8, false);
  device.versions = {.driver = 12020, .runtime = 12060};
  EXPECT_THAT(std::string(CheckKernelsRunOn(device, "90-real").message()), HasSubstr("one of CUDA 12.3 or later is needed"));
  device.versions.driver = 12040;
  EXPECT_EQ(CheckKernelsRunOn(device, "90-real"), absl::OkStatus());
  const absl::Status status = CheckKernelsRunOn(device, "80");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("a driver of CUDA 12.6 or later"), HasSubstr("-DMOED_CUDA_ARCHITECTURES=90")));
}

TEST(CudaDevice, TheBackendIsRefusedWithTheReasonOrMade) {
  InlineExecutor executor;
  const auto made = MakeComputeBackend("cuda", executor);
  const auto devices = FindCudaDevices();
  EXPECT_EQ(made.ok(), CudaRefusal().ok());
  EXPECT_EQ(made.status(), CudaRefusal());
  if (!devices.ok()) {
    EXPECT_EQ(made.status(), devices.status());
    EXPECT_EQ(made.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(made.status().message()), testing::MatchesRegex("no CUDA device: .+; .+"));
    return;
  }
  ASSERT_FALSE(devices->empty());
  for (const CudaDevice& device : *devices) {
    EXPECT_NE(device.name, "");
    EXPECT_GT(device.memory_bytes, 0);
  }
  if (!made.ok()) {
    EXPECT_THAT(std::string(made.status().message()), HasSubstr(devices->front().name));
  }
}

// A stream that only notes the kernels.
class NotingStream final : public DeviceStream {
 public:
  void Launch(const Kernel& kernel, const LaunchShape&, std::span<const std::byte>) override { kernels.push_back(kernel); }
  void Copy(void*, const void*, size_t) override {}
  void Fill(void*, uint8_t, size_t) override {}
  void LaunchAll(LaunchGraph&) override {}
  void Multiply(const HalfProduct&) override {}
  void Record(ReadyEvent&) override {}
  void Await(const ReadyEvent&) override {}
  bool Idle() const override { return true; }
  absl::Status Synchronize() override { return absl::OkStatus(); }

  std::vector<Kernel> kernels;
};

// What is loaded before a device's free memory is asked.
TEST(CudaDevice, KernelsThatAreLaunchedAreAmongThoseToLoad) {
  if (CompiledKernels() == nullptr) GTEST_SKIP() << "this build has no CUDA kernels";
  NotingStream stream;
  float x = 0;
  CompiledKernels()->scale(stream, {.x = &x, .scale = 2, .n = 1});
  CompiledKernels()->soft_cap(stream, {.x = &x, .cap = 2, .n = 1});
  CompiledKernels()->softmax(stream, {.x = &x, .rows = 1, .cols = 1});
  ASSERT_EQ(stream.kernels.size(), 3u);
  const std::span<const Kernel> loaded = KernelsToLoad();
  for (const Kernel& kernel : stream.kernels) {
    EXPECT_EQ(std::count_if(loaded.begin(), loaded.end(), [&](const Kernel& one) { return one.function == kernel.function; }), 1)
        << kernel.signature;
  }
}

// Where there is a device: two streams, an event between, memories of three kinds.
TEST(CudaRuntime, CopiesOnTwoStreamsOrSaysThatThereIsNoDevice) {
  const auto made = MakeCudaRuntime(/*joins_launches=*/false, {});
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
