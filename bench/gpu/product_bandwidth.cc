// product_bandwidth: how fast the product kernels of each format read weights on the CUDA device, as a share of what a copy on
// the device moves. Weights and activations lie in the device's memory, so any device will do that has kernels in this build.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/kernels/cuda/device.h"
#include "core/kernels/cuda_kernel_set.h"
#include "core/kernels/cuda_row.h"
#include "core/quant/format.h"
#include "nlohmann/json.hpp"

namespace moed {
namespace {

constexpr size_t kWeightBytes = 256 << 20;  // of a launch: beyond every cache
constexpr int kTurns = 5;
constexpr int kLaunches = 8;  // of a turn

struct Shape {
  int rows, cols;
};
// Experts of Qwen3-30B-A3B (gate and up, down), and a square one.
constexpr Shape kShapes[] = {{768, 2048}, {2048, 768}, {4096, 4096}};
constexpr int kTokens[] = {1, 4, 16};

class Bench {
 public:
  static absl::StatusOr<Bench> Open() {
    MOED_ASSIGN_OR_RETURN(auto runtime, OpenCudaDevice());
    MOED_ASSIGN_OR_RETURN(auto stream, runtime->MakeStream());
    MOED_ASSIGN_OR_RETURN(Buffer weights, runtime->Allocate(2 * kWeightBytes, MemoryKind::kDevice));
    MOED_ASSIGN_OR_RETURN(Buffer numbers, runtime->Allocate(kWeightBytes, MemoryKind::kDevice));
    return Bench(std::move(runtime), std::move(stream), std::move(weights), std::move(numbers));
  }

  // Bytes that a copy reads and writes a second.
  absl::StatusOr<double> CopyRate() {
    std::byte* const half = weights_.data() + kWeightBytes;
    return Rate(2.0 * kWeightBytes, [&] { stream_->Copy(half, weights_.data(), kWeightBytes); });
  }

  // Bytes of weights that products read a second: as many matrices side by side as make kWeightBytes.
  absl::StatusOr<double> ProductRate(const Format& format, const Shape& shape, int tokens) {
    const size_t matrix =
        size_t{static_cast<unsigned>(Panels(shape.rows))} * (shape.cols / format.block_columns) * format.panel_block_bytes;
    const int count = static_cast<int>(std::max<size_t>(1, kWeightBytes / matrix));
    const int panels = cuda::PanelsOfBlock(PackedBytes(format.id, kPanelRows, shape.cols), tokens);
    std::vector<cuda::ProductJob> jobs(static_cast<size_t>(count));
    MOED_ASSIGN_OR_RETURN(const Buffer described, runtime_->Allocate(count * sizeof(cuda::ProductJob), MemoryKind::kDevice));
    const auto* const on_device = reinterpret_cast<const cuda::ProductJob*>(described.data());
    cuda::ProductsOperation operation = {.format = format.id, .jobs = on_device, .count = count, .groups = 0, .tokens = tokens};
    const int blocks = Blocks(shape.cols);
    Arena arena(numbers_.span());
    const size_t inputs = size_t{static_cast<unsigned>(tokens)} * blocks;
    const float* const values = arena.Take<float>(inputs * kBlockColumns).data();
    const int8_t* const codes = arena.Take<int8_t>(inputs * kBlockColumns).data();
    const float* const scales = arena.Take<float>(inputs).data();
    const int32_t* const sums = arena.Take<int32_t>(inputs).data();
    for (int i = 0; i < count; ++i) {
      jobs[i] = {.weights = reinterpret_cast<const unsigned char*>(weights_.data()) + i * matrix,
                 .values = values,
                 .codes = codes,
                 .scales = scales,
                 .sums = sums,
                 .output = arena.Take<float>(size_t{static_cast<unsigned>(tokens)} * shape.rows).data(),
                 .output_stride = shape.rows,
                 .rows = shape.rows,
                 .blocks = blocks,
                 .tokens = tokens,
                 .first_group = operation.groups,
                 .panels = panels};
      operation.groups += static_cast<int>(CeilDiv(Panels(shape.rows), panels));
    }
    stream_->Copy(described.data(), jobs.data(), count * sizeof(cuda::ProductJob));
    return Rate(static_cast<double>(matrix) * count, [&] { CompiledKernels()->products(*stream_, operation); });
  }

 private:
  Bench(std::unique_ptr<DeviceRuntime> runtime, std::unique_ptr<DeviceStream> stream, Buffer weights, Buffer numbers)
      : runtime_(std::move(runtime)), stream_(std::move(stream)), weights_(std::move(weights)), numbers_(std::move(numbers)) {
    stream_->Fill(weights_.data(), 0x11, weights_.size());  // numbers in every format
    stream_->Fill(numbers_.data(), 0x11, numbers_.size());
  }

  // The best of some turns, the first one left out.
  template <class Enqueue>
  absl::StatusOr<double> Rate(double bytes, const Enqueue& enqueue) {
    double best = 0;
    for (int turn = -1; turn < kTurns; ++turn) {
      MOED_RETURN_IF_ERROR(stream_->Synchronize());
      const int64_t start = Clock::Real().NowNanos();
      for (int i = 0; i < kLaunches; ++i) enqueue();
      MOED_RETURN_IF_ERROR(stream_->Synchronize());
      const double seconds = SecondsBetween(start, Clock::Real().NowNanos());
      if (turn >= 0) best = std::max(best, kLaunches * bytes / seconds);
    }
    return best;
  }

  std::unique_ptr<DeviceRuntime> runtime_;
  std::unique_ptr<DeviceStream> stream_;
  Buffer weights_;
  Buffer numbers_;
};

// `device_alone`: nothing of the products; `formats`: those alone, where there are any.
absl::Status Run(bool device_alone, const std::vector<std::string>& formats, const std::string& json_path) {
  MOED_ASSIGN_OR_RETURN(const std::vector<CudaDevice> devices, FindCudaDevices());
  const std::string device = Describe({devices.data(), 1});
  MOED_ASSIGN_OR_RETURN(Bench bench, Bench::Open());
  MOED_ASSIGN_OR_RETURN(const double copy, bench.CopyRate());
  std::printf("%s\ncopy on the device: %.1f GB/s read and written\n\n", device.c_str(), copy * 1e-9);
  if (device_alone) return absl::OkStatus();
  std::printf("| format | rows x columns | tokens | GB/s of weights | share of the copy |\n|---|---|---|---|---|\n");
  nlohmann::ordered_json report = {{"device", device}, {"copy_bytes_per_second", copy}};
  report["products"] = nlohmann::ordered_json::array();
  for (const Format& format : Formats()) {
    if (!formats.empty() && std::find(formats.begin(), formats.end(), format.name) == formats.end()) continue;
    for (const Shape& shape : kShapes) {
      for (const int tokens : kTokens) {
        MOED_ASSIGN_OR_RETURN(const double rate, bench.ProductRate(format, shape, tokens));
        std::printf("| %s | %d x %d | %d | %.1f | %.2f |\n", std::string(format.name).c_str(), shape.rows, shape.cols, tokens,
                    rate * 1e-9, rate / copy);
        report["products"].push_back({{"format", format.name},
                                      {"rows", shape.rows},
                                      {"columns", shape.cols},
                                      {"tokens", tokens},
                                      {"bytes_per_second", rate},
                                      {"share_of_copy", rate / copy}});
      }
    }
  }
  if (!json_path.empty()) std::ofstream(json_path) << report.dump(1) << "\n";
  return absl::OkStatus();
}

}  // namespace
}  // namespace moed

int main(int argc, char** argv) {
  CLI::App app("Product kernels on the CUDA device as a share of a copy's bandwidth.");
  std::string json;
  bool usable = false, device = false;
  std::vector<std::string> formats;
  app.add_option("--format", formats, "only products of this format; may be given again")->check([](const std::string& name) {
    return std::string(moed::ParseFormat(name).status().message());
  });
  app.add_option("--json", json, "write the figures to this file as well");
  app.add_flag("--usable", usable, "only say whether the compute backend \"cuda\" can use the device");
  app.add_flag("--device", device, "only name the device and measure its copy");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = usable ? moed::CudaRefusal() : moed::Run(device, formats, json);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
