#include "core/kernels/cuda_products.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <utility>

#include "core/base/check.h"
#include "core/kernels/cuda_kernel_set.h"

namespace moed::cuda {
namespace {

constexpr int kTogether[] = {1, kFewTokens, INT32_MAX};  // tokens: jobs with as many are one launch

ProductJob Described(const MatMulJob& job, ExpertChoices& choices) {
  const Activations& x = *job.input;
  return {.weights = reinterpret_cast<const unsigned char*>(job.weights.data),
          .values = x.values,
          .codes = x.codes,
          .scales = x.scales,
          .sums = x.sums,
          .bias = job.bias,
          .output = job.output,
          .output_stride = job.output_stride,
          .rows = job.weights.rows,
          .blocks = Blocks(job.weights.cols),
          .tokens = x.tokens,
          .first_group = 0,
          .panels = PanelsOfBlock(PackedBytes(job.weights.format, kPanelRows, job.weights.cols), x.tokens),
          .scale = job.scale,
          .adds = job.adds,
          .choice = job.choice == nullptr ? nullptr : choices.ChoicesOf({job.choice, 1}),
          .matrices = job.choice == nullptr ? nullptr : choices.MatricesOf(job.matrices)};
}

}  // namespace

void LaunchProducts(std::span<const MatMulJob> jobs, absl::FunctionRef<bool(const MatMulJob&)> among, Descriptions& descriptions,
                    ExpertChoices& choices, absl::FunctionRef<void(const ProductsOperation&)> launch) {
  const auto launch_those = [&](FormatId format, int fewer, int most) {
    const auto those = [&](const MatMulJob& job) {
      return job.weights.format == format && job.input->tokens > fewer && job.input->tokens <= most && job.weights.rows > 0 &&
             among(job);
    };
    const auto count = std::ranges::count_if(jobs, those);
    if (count == 0) return;
    const auto described = descriptions.Take<ProductJob>(static_cast<size_t>(count));
    ProductsOperation operation = {
        .format = format, .jobs = described.device, .count = static_cast<int>(count), .groups = 0, .tokens = 0};
    ProductJob* next = described.host;
    for (const MatMulJob& job : jobs) {
      if (!those(job)) continue;
      *next = Described(job, choices);
      next->first_group = operation.groups;
      operation.groups += static_cast<int>(CeilDiv(Panels(job.weights.rows), next->panels));
      operation.tokens = std::max(operation.tokens, job.input->tokens);
      ++next;
    }
    launch(operation);
  };
  uint32_t formats = 0;
  static_assert(kFormatCount <= 32);
  for (const MatMulJob& job : jobs) formats |= uint32_t{among(job)} << static_cast<int>(job.weights.format);
  for (int format = 0; format < kFormatCount; ++format) {
    if ((formats >> format & 1) == 0) continue;
    int fewer = 0;
    for (const int most : kTogether) launch_those(static_cast<FormatId>(format), std::exchange(fewer, most), most);
  }
}

HalveInputOperation HalveInputOf(const MatMulJob& job, const HalfStorage& storage) {
  const Activations& x = *job.input;
  return {.values = InputForms::Of({job.weights.format}).codes ? nullptr : x.values,
          .codes = x.codes,
          .scales = x.scales,
          .to = {storage.input.data(), storage.input_inverses.data()},
          .rows = x.tokens,
          .cols = x.cols};
}

HalveWeightsOperation HalveWeightsOf(const MatrixView& slab, const HalfStorage& storage) {
  return {.format = slab.format,
          .matrix = reinterpret_cast<const unsigned char*>(slab.data),
          .to = {storage.weights.data(), storage.weight_inverses.data()},
          .rows = slab.rows,
          .cols = slab.cols};
}

FinishProductsOperation FinishProductsOf(const MatMulJob& job, const MatrixView& slab, int first, const HalfStorage& storage) {
  return {.products = storage.products.data(),
          .weight_inverses = storage.weight_inverses.data(),
          .input_inverses = storage.input_inverses.data(),
          .bias = job.bias == nullptr ? nullptr : job.bias + first,
          .output = job.output + first,
          .output_stride = job.output_stride,
          .rows = slab.rows,
          .scale = job.scale,
          .adds = job.adds,
          .n = int64_t{job.input->tokens} * slab.rows};
}

}  // namespace moed::cuda
