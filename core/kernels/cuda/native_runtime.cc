#include "core/kernels/cuda/native_runtime.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/lost_device.h"
#include "core/base/status.h"
#include "core/kernels/cuda/device.h"
#include "core/kernels/cuda/kernel_name.h"
#include "core/kernels/cuda/native_errors.h"
#include "core/kernels/cuda/native_matmul.h"

namespace moed {
namespace {

// The first thing that went wrong, for whoever waits from then on: nobody knows which results it spoiled.
class Health {
 public:
  void Note(cudaError_t error, std::string_view what) {
    if (error != cudaSuccess) Note(CudaStatus(error, what));
  }
  void Note(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    status_.Update(status);
  }
  absl::Status status() const {
    absl::MutexLock lock(&mutex_);
    return status_.ok() ? status_ : WithLostDevice(status_);
  }

 private:
  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

// Who only asks takes an error for an answer: the wait that follows tells it.
bool Done(cudaError_t error) { return error != cudaErrorNotReady; }

class CudaEvent final : public ReadyEvent {
 public:
  explicit CudaEvent(cudaEvent_t event) : event_(event) {}
  ~CudaEvent() override { cudaEventDestroy(event_); }
  bool Ready() const override { return Done(cudaEventQuery(event_)); }
  cudaEvent_t get() const { return event_; }

 private:
  const cudaEvent_t event_;
};

class CudaGraph final : public LaunchGraph {
 public:
  explicit CudaGraph(cudaGraphExec_t graph) : graph_(graph) {}
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  cudaGraphExec_t get() const { return graph_; }

 private:
  const cudaGraphExec_t graph_;
};

// More shared memory than every device gives unasked has to be asked for.
cudaError_t AllowShared(const Kernel& kernel, const LaunchShape& shape) {
  constexpr unsigned kWithoutAsking = 48 << 10;
  if (shape.shared_bytes <= kWithoutAsking) return cudaSuccess;
  return cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
}

dim3 Dim3(const Dimensions& dimensions) { return {dimensions.x, dimensions.y, dimensions.z}; }

// A node behind `last`, which it replaces; null: the first. `joins`: its blocks of threads may come while those of `last` end
// (JoinLaunches).
cudaError_t AddNode(cudaGraph_t graph, const KernelLaunch& launch, bool joins, cudaGraphNode_t& last) {
  if (const cudaError_t error = AllowShared(launch.kernel, launch.shape); error != cudaSuccess) return error;
  void* parameters[] = {const_cast<std::byte*>(launch.arguments.data())};  // copied by the call
  cudaGraphNodeParams node = {};
  node.type = cudaGraphNodeTypeKernel;
  node.kernel.func = const_cast<void*>(launch.kernel.function);
  node.kernel.gridDim = Dim3(launch.shape.grid);
  node.kernel.blockDim = Dim3(launch.shape.block);
  node.kernel.sharedMemBytes = launch.shape.shared_bytes;
  node.kernel.kernelParams = parameters;
  cudaGraphEdgeData edge = {};
  if (joins) edge = {.from_port = cudaGraphKernelNodePortProgrammatic, .type = cudaGraphDependencyTypeProgrammatic};
  const cudaGraphNode_t before = last;
#if CUDART_VERSION >= 13000
  return cudaGraphAddNode(&last, graph, &before, &edge, before == nullptr ? 0 : 1, &node);
#else
  return cudaGraphAddNode_v2(&last, graph, &before, &edge, before == nullptr ? 0 : 1, &node);
#endif
}

// cuBLAS, for one stream at a time.
struct Matmul {
  absl::Mutex mutex;
  std::unique_ptr<NativeMatmul> opened ABSL_GUARDED_BY(mutex);  // before a stream multiplies
};

class CudaStream final : public DeviceStream {
 public:
  CudaStream(cudaStream_t stream, Health& health, Matmul& matmul) : stream_(stream), health_(health), matmul_(matmul) {}
  ~CudaStream() override {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }

  void Copy(void* to, const void* from, size_t bytes) override {
    health_.Note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "copy");
  }
  void Fill(void* to, uint8_t value, size_t bytes) override { health_.Note(cudaMemsetAsync(to, value, bytes, stream_), "fill"); }
  void Launch(const Kernel& kernel, const LaunchShape& shape, std::span<const std::byte> arguments) override {
    cudaError_t error = AllowShared(kernel, shape);
    if (error == cudaSuccess) {
      void* parameters[] = {const_cast<std::byte*>(arguments.data())};  // copied by the call
      error = cudaLaunchKernel(kernel.function, Dim3(shape.grid), Dim3(shape.block), parameters, shape.shared_bytes, stream_);
    }
    if (error != cudaSuccess) health_.Note(error, KernelName(kernel));
  }
  void LaunchAll(LaunchGraph& graph) override {
    health_.Note(cudaGraphLaunch(static_cast<CudaGraph&>(graph).get(), stream_), "a graph of launches");
  }
  void Multiply(const HalfProduct& product) override {
    absl::MutexLock lock(&matmul_.mutex);
    health_.Note(matmul_.opened->Multiply(product, stream_));
  }
  void Record(ReadyEvent& event) override {
    health_.Note(cudaEventRecord(static_cast<CudaEvent&>(event).get(), stream_), "record");
  }
  void Await(const ReadyEvent& event) override {
    health_.Note(cudaStreamWaitEvent(stream_, static_cast<const CudaEvent&>(event).get(), 0), "await");
  }
  bool Idle() const override { return Done(cudaStreamQuery(stream_)); }
  absl::Status Synchronize() override {
    health_.Note(cudaStreamSynchronize(stream_), "work of a stream");
    return health_.status();
  }

 private:
  const cudaStream_t stream_;
  Health& health_;
  Matmul& matmul_;
};

// What cannot be made leaves the device well.
absl::Status Made(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  return CudaStatus(error, what);
}

absl::StatusOr<Buffer> Adopted(cudaError_t error, void* data, size_t bytes, MemoryKind kind, Buffer::Deleter deleter) {
  MOED_RETURN_IF_ERROR(Made(error, StrCat(bytes, " bytes of memory")));
  return Buffer::Adopt(static_cast<std::byte*>(data), bytes, kind, deleter);
}

constexpr unsigned kPinned = cudaHostAllocPortable | cudaHostAllocMapped;

absl::StatusOr<Buffer> AllocatePinned(size_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaHostAlloc(&data, bytes, kPinned);
  return Adopted(error, data, bytes, MemoryKind::kPinned, [](std::byte* pinned, size_t) { cudaFreeHost(pinned); });
}

bool BeginsPage(const std::byte* data) { return reinterpret_cast<uintptr_t>(data) % kPageBytes == 0; }

// The same from the first page on of what the driver gives: its small pieces may begin within one. Where such a piece begins
// stands right before that page.
absl::StatusOr<Buffer> AllocatePinnedPages(size_t bytes) {
  MOED_ASSIGN_OR_RETURN(Buffer whole, AllocatePinned(bytes));
  if (BeginsPage(whole.data())) return whole;
  whole = Buffer();
  void* piece = nullptr;
  const cudaError_t error = cudaHostAlloc(&piece, bytes + 2 * kPageBytes, kPinned);
  const uintptr_t begin = RoundUp(reinterpret_cast<uintptr_t>(piece) + sizeof(piece), kPageBytes);
  if (error == cudaSuccess) std::memcpy(reinterpret_cast<void*>(begin - sizeof(piece)), &piece, sizeof(piece));
  return Adopted(error, reinterpret_cast<void*>(begin), bytes, MemoryKind::kPinned, [](std::byte* pinned, size_t) {
    void* first = nullptr;
    std::memcpy(&first, pinned - sizeof(first), sizeof(first));
    cudaFreeHost(first);
  });
}

class CudaRuntime final : public DeviceRuntime {
 public:
  CudaRuntime(const DeviceAttributes& attributes, bool joins_launches)
      : attributes_(attributes), joins_launches_(joins_launches) {}

  const DeviceAttributes& attributes() const override { return attributes_; }

  absl::StatusOr<Buffer> Allocate(size_t bytes, MemoryKind kind) override {
    if (kind == MemoryKind::kHost) return Buffer::Allocate(bytes);
    if (bytes == 0) return InvalidArgument("memory of 0 bytes");
    if (kind == MemoryKind::kPinned) return AllocatePinnedPages(bytes);
    void* data = nullptr;
    const cudaError_t error = kind == MemoryKind::kManaged ? cudaMallocManaged(&data, bytes) : cudaMalloc(&data, bytes);
    return Adopted(error, data, bytes, kind, [](std::byte* memory, size_t) { cudaFree(memory); });
  }

  absl::StatusOr<std::unique_ptr<DeviceStream>> MakeStream() override {
    cudaStream_t stream = nullptr;
    MOED_RETURN_IF_ERROR(Made(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream"));
    return std::make_unique<CudaStream>(stream, health_, matmul_);
  }
  absl::StatusOr<std::unique_ptr<ReadyEvent>> MakeEvent() override {
    cudaEvent_t event = nullptr;
    MOED_RETURN_IF_ERROR(Made(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event"));
    return std::make_unique<CudaEvent>(event);
  }

  absl::StatusOr<std::unique_ptr<LaunchGraph>> MakeGraph(std::span<const KernelLaunch> launches) override {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t made = nullptr;
    cudaError_t error = cudaGraphCreate(&graph, 0);
    cudaGraphNode_t last = nullptr;
    for (const KernelLaunch& launch : launches) {
      if (error == cudaSuccess) error = AddNode(graph, launch, joins_launches_, last);
    }
    if (error == cudaSuccess) error = cudaGraphInstantiate(&made, graph, 0);
    if (graph != nullptr) cudaGraphDestroy(graph);
    MOED_RETURN_IF_ERROR(Made(error, StrCat("a graph of ", launches.size(), " launches")));
    return std::make_unique<CudaGraph>(made);
  }

  absl::Status OpenMatmul() override {
    absl::MutexLock lock(&matmul_.mutex);
    if (matmul_.opened != nullptr) return absl::OkStatus();
    MOED_ASSIGN_OR_RETURN(matmul_.opened, OpenCublas());
    size_t free_bytes = 0, all_bytes = 0;
    MOED_RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free_bytes, &all_bytes), "the device's free memory"));
    attributes_.free_bytes = free_bytes;
    return absl::OkStatus();
  }

  absl::Status Wait(const ReadyEvent& event) override {
    health_.Note(cudaEventSynchronize(static_cast<const CudaEvent&>(event).get()), "work before an event");
    return health_.status();
  }
  absl::Status Synchronize() override {
    health_.Note(cudaDeviceSynchronize(), "work of the device");
    return health_.status();
  }

 private:
  DeviceAttributes attributes_;
  const bool joins_launches_;
  Health health_;
  Matmul matmul_;
};

// Unasked the driver loads a kernel at its first launch, or makes it of PTX.
absl::Status LoadKernels(std::span<const Kernel> kernels) {
  cudaFuncAttributes attributes;
  for (const Kernel& kernel : kernels) {
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel.function);
    if (error != cudaSuccess) return Made(error, StrCat("loading ", KernelName(kernel)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceRuntime>> MakeCudaRuntime(bool joins_launches, std::span<const Kernel> kernels) {
  MOED_RETURN_IF_ERROR(FindCudaDevices().status());
  cudaDeviceProp properties;
  MOED_RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&properties, 0), "the first device"));
  MOED_RETURN_IF_ERROR(CudaStatus(cudaFree(nullptr), StrCat("opening ", properties.name)));  // the first call that needs it does
  MOED_RETURN_IF_ERROR(LoadKernels(kernels));
  size_t free_bytes = 0, all_bytes = 0;
  MOED_RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free_bytes, &all_bytes), "its free memory"));
  const DeviceAttributes attributes = {.unified_memory = properties.integrated != 0,
                                       .memory_bytes = properties.totalGlobalMem,
                                       .free_bytes = free_bytes,
                                       .shared_bytes = static_cast<unsigned>(properties.sharedMemPerBlockOptin),
                                       .multiprocessors = properties.multiProcessorCount};
  return std::make_unique<CudaRuntime>(attributes, joins_launches);
}

}  // namespace moed
