// Kernels whose bits are compared with those of "scalar". In emulation each of their accesses is watched: inside of its arrays,
// aligned, never of what nobody wrote, never in a race; each array has exactly the bytes that the operation says. Where there is
// a CUDA device, the compiled kernels on it as well, with the same arrays in pinned memory.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/kernels/cuda/emulation/runtime.h"
#include "core/kernels/cuda_backend.h"
#include "core/kernels/cuda_row.h"
#include "tests/kernels/fixtures.h"

namespace moed {

// The backend under test beside the scalar one. Memory that kernels may touch is taken from its device.
class KernelsBesideScalar {
 protected:
  KernelsBesideScalar(std::string_view name, const cuda::KernelSet& kernels, std::unique_ptr<DeviceRuntime> runtime)
      : runtime_(runtime.get()), backend_(MakeCudaBackend(name, kernels, std::move(runtime), executor_).value()) {}

  // Of exactly these numbers, for both backends.
  template <class T>
  T* Keep(const std::vector<T>& numbers) {
    buffers_.push_back(runtime_->Allocate(numbers.size() * sizeof(T), MemoryKind::kPinned).value());
    std::memcpy(buffers_.back().data(), numbers.data(), numbers.size() * sizeof(T));
    return reinterpret_cast<T*>(buffers_.back().data());
  }
  std::span<std::byte> Storage(size_t bytes) { return {Keep(std::vector<std::byte>(bytes)), bytes}; }
  MatrixView Keep(const PackedMatrix& matrix) {
    MatrixView view = matrix.view;
    view.data = Keep(matrix.bytes);
    return view;
  }

  // operation(backend, x): what becomes of a copy of x on either.
  template <class T, class Operation>
  void Compare(const std::vector<T>& x, const Operation& operation) {
    T* const expected = Keep(x);
    T* const found = Keep(x);
    operation(*scalar_, expected);
    operation(*backend_, found);
    ASSERT_EQ(backend_->Fence(), absl::OkStatus());  // the first fault
    if constexpr (std::is_same_v<T, float>) {
      EXPECT_TRUE(SameBits({found, x.size()}, {expected, x.size()}));
    } else {
      EXPECT_EQ(std::memcmp(found, expected, x.size() * sizeof(T)), 0);
    }
  }

  InlineExecutor executor_;
  std::unique_ptr<ComputeBackend> scalar_ = MakeComputeBackend("scalar", executor_).value();
  DeviceRuntime* const runtime_;
  std::vector<Buffer> buffers_;
  std::unique_ptr<ComputeBackend> backend_;
};

inline std::unique_ptr<DeviceRuntime> Watched() { return emulation::MakeEmulatedRuntime({}); }

struct TestedKernels {
  const char* name;
  const cuda::KernelSet* kernels;
  std::unique_ptr<DeviceRuntime> (*open)();
};
// In emulation, every access watched; and on the CUDA device where there is one.
inline std::vector<TestedKernels> AllKernels() {
  std::vector<TestedKernels> all = {{"emulated", &cuda::kEmulatedKernels, Watched}};
  if (OpenCudaDevice().ok()) all.push_back({"device", CompiledKernels(), [] { return OpenCudaDevice().value(); }});
  return all;
}

class EachKernels : public KernelsBesideScalar, public ::testing::TestWithParam<TestedKernels> {
 protected:
  EachKernels() : KernelsBesideScalar(GetParam().name, *GetParam().kernels, GetParam().open()) {}
};
inline std::string NameOf(const ::testing::TestParamInfo<TestedKernels>& kernels) { return kernels.param.name; }

}  // namespace moed
