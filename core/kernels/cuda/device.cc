#include "core/kernels/cuda/device.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr int kLeastCapability = 80;
constexpr int kLeastDriver = 12030;  // graphs of launches have edges from then on
// Devices with these run no code but their own, and no other runs theirs: those that share a chip with a processor.
constexpr int kApart[] = {87, 101, 110};

constexpr int kLeastToJoin = 90;  // kernels compiled for less do not wait in JoinLaunches (compiled.h)

struct Image {
  enum Kind { kNone, kPtx, kCode };
  Kind kind = kNone;
  int architecture = 0;  // that it was compiled for
};

bool RunsCodeOf(int device, int code) {
  const auto apart = [](int capability) {
    return std::find(std::begin(kApart), std::end(kApart), capability) != std::end(kApart);
  };
  return device == code || (device / 10 == code / 10 && code < device && !apart(device) && !apart(code));
}

int CapabilityOf(const CudaDevice& device) { return 10 * device.major + device.minor; }

// What the driver takes for a device: code, the highest that runs there, before PTX, which it makes into code.
Image ImageFor(int device, std::string_view architectures) {
  Image best;
  for (const absl::string_view architecture : absl::StrSplit(ToAbsl(architectures), ',', absl::SkipEmpty())) {
    int number = 0;
    const char* const end = architecture.data() + architecture.size();
    const char* const behind = std::from_chars(architecture.data(), end, number).ptr;
    const std::string_view kind(behind, static_cast<size_t>(end - behind));
    const auto take = [&](Image::Kind taken) {
      if (std::pair(taken, number) > std::pair(best.kind, best.architecture)) best = {taken, number};
    };
    if (kind != "-virtual" && RunsCodeOf(device, number)) take(Image::kCode);
    if (kind != "-real" && device >= number) take(Image::kPtx);
  }
  return best;
}

}  // namespace

std::string CudaVersion(int version) { return version == 0 ? "none" : StrCat(version / 1000, ".", version % 1000 / 10); }

std::string Describe(std::span<const CudaDevice> devices) {
  return JoinNames(devices, [](const CudaDevice& device) {
    return absl::StrFormat("%s (compute capability %d.%d, %.1f GiB of %s memory, driver %s, runtime %s)", device.name,
                           device.major, device.minor, static_cast<double>(device.memory_bytes) / (1 << 30),
                           device.unified_memory ? "unified" : "its own", CudaVersion(device.versions.driver),
                           CudaVersion(device.versions.runtime));
  });
}

absl::Status CheckKernelsRunOn(const CudaDevice& device, std::string_view architectures) {
  const int capability = CapabilityOf(device);
  const std::string found = Describe({&device, 1});
  if (capability < kLeastCapability) {
    return FailedPrecondition("the CUDA device ", found, " is too old: compute capability 8.0 is needed");
  }
  if (architectures.empty()) {
    return FailedPrecondition("this build has no CUDA kernels for ", found,
                              ": it was made without nvcc; cmake -DMOED_CUDA=ON says what is missing");
  }
  if (device.versions.driver < kLeastDriver) {
    return FailedPrecondition("the driver of ", found, " is too old: one of CUDA ", CudaVersion(kLeastDriver),
                              " or later is needed");
  }
  const Image::Kind image = ImageFor(capability, architectures).kind;
  if (image == Image::kNone) {
    return FailedPrecondition("this build has no CUDA kernels for ", found, ", but for ", architectures,
                              "; build it with cmake -DMOED_CUDA_ARCHITECTURES=", capability);
  }
  if (image == Image::kPtx && device.versions.driver < device.versions.runtime) {
    return FailedPrecondition("this build's CUDA kernels are PTX for ", found,
                              ", which a driver older than the toolkit cannot compile; install a driver of CUDA ",
                              CudaVersion(device.versions.runtime),
                              " or later, or build with cmake -DMOED_CUDA_ARCHITECTURES=", capability);
  }
  return absl::OkStatus();
}

bool KernelsJoinLaunches(const CudaDevice& device, std::string_view architectures) {
  return ImageFor(CapabilityOf(device), architectures).architecture >= kLeastToJoin;
}

}  // namespace moed
