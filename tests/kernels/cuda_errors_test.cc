// What is said of errors of the CUDA runtime: its name and words, what to do, and the status that callers go by.
#include <cuda_runtime_api.h>

#include <string>

#include "core/kernels/cuda/native_errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace moed {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(CudaErrors, AreNamedWithTheirWordsAndTheRemedy) {
  EXPECT_EQ(CudaStatus(cudaSuccess, "copy"), absl::OkStatus());
  const absl::Status memory = CudaStatus(cudaErrorMemoryAllocation, "4096 bytes of memory");
  EXPECT_EQ(memory.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(memory.message()), testing::AllOf(StartsWith("CUDA: 4096 bytes of memory: out of memory"),
                                                            HasSubstr("(cudaErrorMemoryAllocation); other programs")));
}

TEST(CudaErrors, WhatIsWrongWithTheMachineIsAPrecondition) {
  for (const cudaError_t error :
       {cudaErrorNoDevice, cudaErrorInsufficientDriver, cudaErrorUnsupportedPtxVersion, cudaErrorNoKernelImageForDevice,
        cudaErrorDevicesUnavailable, cudaErrorSystemDriverMismatch, cudaErrorStubLibrary}) {
    const absl::Status status = CudaStatus(error, "x");
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("); "));  // a remedy
  }
}

TEST(CudaErrors, ADeviceThatIsLostSaysSo) {
  for (const cudaError_t error : {cudaErrorIllegalAddress, cudaErrorLaunchFailure, cudaErrorECCUncorrectable, cudaErrorAssert}) {
    const absl::Status status = CudaStatus(error, "work of a stream");
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(HasSubstr(cudaGetErrorName(error)), HasSubstr("start the process again")));
  }
  EXPECT_THAT(std::string(CudaStatus(cudaErrorInvalidConfiguration, "Rope").message()),
              testing::AllOf(StartsWith("CUDA: Rope: "), testing::EndsWith("(cudaErrorInvalidConfiguration)")));
}

}  // namespace
}  // namespace moed
