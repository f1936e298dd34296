#include "core/kernels/cuda/native_matmul.h"

#include "core/base/status.h"

#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <utility>

#include "core/base/buffer.h"
#include "core/kernels/cuda/native_errors.h"

namespace moed {
namespace {

#define MOED_TEXT_OF(number) #number
#define MOED_TEXT(number) MOED_TEXT_OF(number)
constexpr char kLibrary[] = "libcublas.so." MOED_TEXT(CUBLAS_VER_MAJOR);
#undef MOED_TEXT
#undef MOED_TEXT_OF

// Of two in C++: the header has another one by this name for its older compute types.
using GemmEx = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k, const void* alpha,
                                  const void* a, cudaDataType, int lda, const void* b, cudaDataType, int ldb, const void* beta,
                                  void* c, cudaDataType, int ldc, cublasComputeType_t, cublasGemmAlgo_t);

struct Functions {
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  decltype(&cublasSetWorkspace_v2) set_workspace = nullptr;
  GemmEx gemm = nullptr;
  decltype(&cublasGetStatusString) text = nullptr;
};

template <class Function>
absl::Status Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr ? absl::OkStatus() : FailedPrecondition(kLibrary, " is without ", name);
}

// Never closed: what it starts stays with the process.
absl::StatusOr<Functions> Load() {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return FailedPrecondition(kLibrary, " does not open (", dlerror(), "): install the cuBLAS of CUDA ", CUBLAS_VER_MAJOR,
                              " and have LD_LIBRARY_PATH name its folder");
  }
  Functions found;
  MOED_RETURN_IF_ERROR(Find(library, "cublasCreate_v2", found.create));
  MOED_RETURN_IF_ERROR(Find(library, "cublasDestroy_v2", found.destroy));
  MOED_RETURN_IF_ERROR(Find(library, "cublasSetStream_v2", found.set_stream));
  MOED_RETURN_IF_ERROR(Find(library, "cublasSetWorkspace_v2", found.set_workspace));
  MOED_RETURN_IF_ERROR(Find(library, "cublasGemmEx", found.gemm));
  MOED_RETURN_IF_ERROR(Find(library, "cublasGetStatusString", found.text));
  return found;
}

// What cuBLAS takes for itself unasked, and is given here, so that it takes none while it computes.
absl::StatusOr<Buffer> AllocateWorkspace() {
  int major = 0;
  MOED_RETURN_IF_ERROR(CudaStatus(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "the first device"));
  const size_t bytes = major >= 9 ? 32 << 20 : 4 << 20;
  void* data = nullptr;
  MOED_RETURN_IF_ERROR(CudaStatus(cudaMalloc(&data, bytes), "memory for cuBLAS"));
  return Buffer::Adopt(static_cast<std::byte*>(data), bytes, MemoryKind::kDevice,
                       [](std::byte* memory, size_t) { cudaFree(memory); });
}

class Cublas final : public NativeMatmul {
 public:
  Cublas(const Functions& functions, cublasHandle_t handle, Buffer workspace)
      : functions_(functions), handle_(handle), workspace_(std::move(workspace)) {}
  ~Cublas() override { functions_.destroy(handle_); }

  // Its matrices are column by column, so ours are their transposes.
  absl::Status Multiply(const HalfProduct& product, cudaStream_t stream) override {
    const float one = 1, zero = 0;
    cublasStatus_t status = functions_.set_stream(handle_, stream);  // which takes the workspace away
    if (status == CUBLAS_STATUS_SUCCESS) status = functions_.set_workspace(handle_, workspace_.data(), workspace_.size());
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = functions_.gemm(handle_, CUBLAS_OP_T, CUBLAS_OP_N, product.rows, product.columns, product.inner, &one, product.a,
                               CUDA_R_16F, product.inner, product.b, CUDA_R_16F, product.inner, &zero, product.c, CUDA_R_32F,
                               product.rows, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    }
    if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
    return Internal("cuBLAS: a product of (", product.rows, ", ", product.inner, ") and ", product.columns,
                    " columns: ", functions_.text(status));
  }

 private:
  const Functions functions_;
  const cublasHandle_t handle_;
  const Buffer workspace_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NativeMatmul>> OpenCublas() {
  MOED_ASSIGN_OR_RETURN(const Functions functions, Load());
  MOED_ASSIGN_OR_RETURN(Buffer workspace, AllocateWorkspace());
  cublasHandle_t handle = nullptr;
  if (const cublasStatus_t status = functions.create(&handle); status != CUBLAS_STATUS_SUCCESS) {
    return FailedPrecondition(kLibrary, " does not start on this device: ", functions.text(status));
  }
  return std::make_unique<Cublas>(functions, handle, std::move(workspace));
}

}  // namespace moed

#else

namespace moed {

absl::StatusOr<std::unique_ptr<NativeMatmul>> OpenCublas() {
  return FailedPrecondition("this build has no cuBLAS: it was made without cublas_v2.h; build with a whole CUDA toolkit");
}

}  // namespace moed

#endif
