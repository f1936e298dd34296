// A device in emulation with one stream.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/kernels/cuda/emulation/runtime.h"
#include "core/kernels/cuda/language.h"

namespace moed {
namespace emulation {

inline void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.text; }

}  // namespace emulation

inline namespace MOED_CUDA_LANGUAGE {

class EmulatedDevice {
 public:
  explicit EmulatedDevice(const emulation::RuntimeOptions& options = {})
      : runtime_(emulation::MakeEmulatedRuntime(options)), stream_(*runtime_->MakeStream()) {}

  emulation::EmulatedRuntime& runtime() { return *runtime_; }

  // Memory that kernels and the test both reach, for as long as the device lives.
  template <class T>
  std::span<T> Numbers(size_t count, T value = {}) {
    buffers_.push_back(*runtime_->Allocate(count * sizeof(T), MemoryKind::kManaged));
    const std::span<T> numbers(reinterpret_cast<T*>(buffers_.back().data()), count);
    std::fill(numbers.begin(), numbers.end(), value);
    return numbers;
  }

  // The faults of one launch.
  template <auto kKernel, class Arguments>
  std::vector<emulation::Fault> Run(const LaunchShape& shape, const Arguments& arguments) {
    Launch<kKernel>(*stream_, shape, arguments);
    const absl::Status status = stream_->Synchronize();
    std::vector<emulation::Fault> faults = runtime_->TakeFaults();
    EXPECT_EQ(status.ok(), faults.empty()) << status;
    return faults;
  }

 private:
  std::unique_ptr<emulation::EmulatedRuntime> runtime_;
  std::unique_ptr<DeviceStream> stream_;
  std::vector<Buffer> buffers_;
};

}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
