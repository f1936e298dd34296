#include "core/kernels/cuda/native_errors.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <iterator>

#include "core/base/lost_device.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr std::string_view kLost = "the device has dropped all that this process had on it: start the process again";
constexpr std::string_view kDriver =
    "install a driver of the toolkit's CUDA version or a later one, or build with an older toolkit";
constexpr std::string_view kImage = "build for this device: cmake -DMOED_CUDA_ARCHITECTURES=...";

struct ErrorRow {
  cudaError_t error;
  absl::StatusCode code;
  std::string_view remedy;
};
constexpr auto kMachine = absl::StatusCode::kFailedPrecondition;
constexpr auto kInternal = absl::StatusCode::kInternal;
constexpr ErrorRow kErrors[] = {
    {cudaErrorMemoryAllocation, absl::StatusCode::kResourceExhausted, "other programs may hold the device's memory (nvidia-smi)"},
    {cudaErrorNoDevice, kMachine, "is a device given to this process? (containers: --gpus all; CUDA_VISIBLE_DEVICES)"},
    {cudaErrorInsufficientDriver, kMachine, kDriver},
    {cudaErrorCallRequiresNewerDriver, kMachine, kDriver},
    {cudaErrorUnsupportedPtxVersion, kMachine, kDriver},
    {cudaErrorCompatNotSupportedOnDevice, kMachine, "take the compatibility package of CUDA out of LD_LIBRARY_PATH"},
    {cudaErrorOperatingSystem, kMachine,
     "a call of the driver to the system was refused: does --sandbox off change it, or the container?"},
    {cudaErrorSystemDriverMismatch, kMachine,
     "the driver's library and its kernel module differ: load the module again, or restart"},
    {cudaErrorStubLibrary, kMachine, "libcuda.so.1 is a toolkit's stub: take it out of LD_LIBRARY_PATH"},
    {cudaErrorDevicesUnavailable, kMachine, "another process has the device for itself (nvidia-smi -q -d COMPUTE)"},
    {cudaErrorNoKernelImageForDevice, kMachine, kImage},
    {cudaErrorInvalidDeviceFunction, kMachine, kImage},
    {cudaErrorIllegalAddress, kInternal, kLost},
    {cudaErrorMisalignedAddress, kInternal, kLost},
    {cudaErrorInvalidAddressSpace, kInternal, kLost},
    {cudaErrorInvalidPc, kInternal, kLost},
    {cudaErrorIllegalInstruction, kInternal, kLost},
    {cudaErrorHardwareStackError, kInternal, kLost},
    {cudaErrorLaunchFailure, kInternal, kLost},
    {cudaErrorLaunchTimeout, kInternal, kLost},
    {cudaErrorAssert, kInternal, kLost},
    {cudaErrorECCUncorrectable, kInternal, kLost},
    {cudaErrorNvlinkUncorrectable, kInternal, kLost},
    {cudaErrorMpsClientTerminated, kInternal, kLost},
    {cudaErrorExternalDevice, kInternal, kLost},
#if CUDART_VERSION >= 13000
    {cudaErrorContained, kInternal, kLost},
    {cudaErrorTensorMemoryLeak, kInternal, kLost},
#endif
    {cudaErrorUnknown, kInternal, kLost},
};

const ErrorRow* RowOf(cudaError_t error) {
  const auto row = std::find_if(std::begin(kErrors), std::end(kErrors), [&](const ErrorRow& r) { return r.error == error; });
  return row == std::end(kErrors) ? nullptr : row;
}

}  // namespace

std::string CudaErrorText(cudaError_t error) {
  std::string text = StrCat(cudaGetErrorString(error), " (", cudaGetErrorName(error), ")");
  if (const ErrorRow* row = RowOf(error)) text += StrCat("; ", row->remedy);
  return text;
}

absl::Status CudaStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const ErrorRow* const row = RowOf(error);
  const absl::Status status(row == nullptr ? kInternal : row->code, StrCat("CUDA: ", what, ": ", CudaErrorText(error)));
  return row != nullptr && row->remedy == kLost ? WithLostDevice(status) : status;
}

}  // namespace moed
