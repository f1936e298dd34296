// cuda_traffic: how the CUDA kernels reach memory at the shapes of released models, counted in emulation, as the tables of
// docs/cuda.md.
#include <algorithm>
#include <cstdio>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "tests/kernels/cuda/traffic/layer_model.h"
#include "tests/kernels/cuda/traffic/product_traffic.h"

namespace moed {
namespace {

using emulation::GlobalTraffic;
using emulation::KernelTraffic;
using emulation::SharedTraffic;

constexpr int kTokens[] = {1, 8, 64};      // a decoded token, pieces of a prompt
constexpr int kTokensOfModels[] = {1, 8};  // since emulation is slow
constexpr int kPosition = 511;             // of the decoded one

// Assumed of devices, beside the bandwidth that their makers state. Nothing here was measured.
struct Device {
  const char* name;
  double bytes_a_second;
  double node_seconds;   // from the end of a kernel of a graph to the begin of the next
  double graph_seconds;  // from its launch by the host to the begin of its first
  double wait_seconds;   // the host's, until it goes on
};
constexpr Device kDevices[] = {{"AGX Orin", 204.8e9, 2.5e-6, 10e-6, 20e-6}, {"H200", 4.8e12, 1.3e-6, 5e-6, 10e-6}};

std::string Ratio(uint64_t of, uint64_t over) {
  return over == 0 ? "-" : absl::StrFormat("%.2f", static_cast<double>(of) / static_cast<double>(over));
}
std::string Moved(const GlobalTraffic& traffic) { return Ratio(traffic.sectors_moved, traffic.sectors_needed); }
std::string Passes(const SharedTraffic& traffic) { return Ratio(traffic.passes, traffic.passes_needed); }
double Bytes(const GlobalTraffic& traffic) { return 32.0 * static_cast<double>(traffic.sectors_moved); }

// "1.00", or "1.00, 1.02, 1.00" where they differ.
std::string Joined(const std::vector<std::string>& of) {
  if (std::all_of(of.begin(), of.end(), [&](const std::string& one) { return one == of[0]; })) return of[0];
  return JoinNames(of, [](const std::string& one) { return one; });
}

void PrintFormats() {
  std::printf("| weights | sectors moved over the matrix's | loads of 16 bytes | passes over the least |\n|---|---|---|---|\n");
  for (const Format& format : Formats()) {
    std::vector<std::string> moved, wide, passes;
    for (const int tokens : kTokens) {
      const ProductTraffic of = TrafficOfProduct(format, tokens);
      moved.push_back(absl::StrFormat("%.2f", of.moved_over_matrix()));
      wide.push_back(absl::StrFormat("%.0f%%", 100 * of.wide_share()));
      passes.push_back(Passes(of.kernel.shared));
    }
    std::printf("| `%s` | %s | %s | %s |\n", std::string(format.name).c_str(), Joined(moved).c_str(), Joined(wide).c_str(),
                Joined(passes).c_str());
  }
}

// "Products of q4", "RmsNorm", "Add".
std::string ShortName(const std::string& kernel) {
  const std::string base = kernel.substr(0, kernel.find('<'));
  if (base == "ComputeElements" || base == "Prepare") {
    const size_t begin = kernel.rfind("::") + 2;
    return kernel.substr(begin, kernel.find("Operation", begin) - begin);
  }
  constexpr std::string_view kBefore = "FormatId::k";
  const size_t format = kernel.find(kBefore);
  if (base == "Attention" || format == std::string::npos) return base;
  const size_t begin = format + kBefore.size();
  const std::string operation = base == "ProductsOfFew" ? "Products" : base;
  return StrCat(operation, " of ", absl::AsciiStrToLower(kernel.substr(begin, kernel.find_first_of(",>", begin) - begin)));
}

void Add(const KernelTraffic& from, KernelTraffic& to) {
  to.launches += from.launches;
  to.loads.Add(from.loads);
  to.loads_once.Add(from.loads_once);
  to.stores.Add(from.stores);
  to.shared.passes += from.shared.passes;
  to.shared.passes_needed += from.shared.passes_needed;
}

// Of all kinds of layers, each as often as the model has it, and what is outside of them.
struct ModelTraffic {
  std::map<std::string, KernelTraffic> kernels[std::size(kTokensOfModels)];  // one layer of each kind, and the rest
  double weight_bytes = 0, kv_bytes = 0, launches = 0, waits = 0;            // of a decoded token, of the whole model
};

void AddToken(const StepTraffic& step, double times, double times_logits, ModelTraffic& to) {
  for (const auto& [name, kernel] : step.kernels) {
    const bool attention = name.starts_with("Attention") && !name.starts_with("AttentionJoin");
    to.weight_bytes += Bytes(kernel.loads_once) * (name.starts_with("Products") ? times_logits : times);
    if (attention) to.kv_bytes += Bytes(kernel.loads) * times;
    to.launches += static_cast<double>(kernel.launches) * times;
  }
  to.waits += static_cast<double>(step.waits) * times;
}

ModelTraffic TrafficOf(const RealModel& model) {
  ModelTraffic all;
  bool first = true;
  for (const LayerKind& kind : model.kinds) {
    if (kind.count == 0) continue;
    LayerModel plain(model, kind, false);
    const StepLaunches repeated = plain.RepeatedStep(kPosition, false), whole = plain.RepeatedStep(kPosition, true);
    MOED_CHECK(repeated.single == 0 && repeated.graphs == repeated.waits);
    MOED_CHECK(whole.single == 0 && whole.graphs == 1 && whole.waits == 1);
    LayerModel layer(model, kind, true);
    for (size_t i = 0; i < std::size(kTokensOfModels); ++i) {
      const int tokens = kTokensOfModels[i];
      const LayerTraffic traffic = layer.Step(tokens == 1 ? kPosition : 0, tokens);
      for (const auto& [name, kernel] : traffic.layer.kernels) Add(kernel, all.kernels[i][ShortName(name)]);
      if (first) {
        for (const auto& [name, kernel] : traffic.rest.kernels) Add(kernel, all.kernels[i][ShortName(name)]);
      }
      if (tokens != 1) continue;
      AddToken(traffic.layer, kind.count, kind.count, all);
      if (first) AddToken(traffic.rest, 1, static_cast<double>(model.vocabulary) / kLogitsRows, all);
    }
    first = false;
  }
  return all;
}

void PrintKernels(const ModelTraffic& traffic, std::string_view name) {
  std::printf("\n| %s | launches | loads: moved over needed | stores | passes over the least |\n|---|---|---|---|---|\n",
              std::string(name).c_str());
  for (const auto& [kernel, decode] : traffic.kernels[0]) {
    std::vector<std::string> loads, stores, passes;
    for (const auto& kernels : traffic.kernels) {
      const auto found = kernels.find(kernel);
      const KernelTraffic of = found == kernels.end() ? KernelTraffic{} : found->second;
      loads.push_back(Moved(of.loads));
      stores.push_back(Moved(of.stores));
      passes.push_back(Passes(of.shared));
    }
    std::printf("| %s | %d | %s | %s | %s |\n", kernel.c_str(), static_cast<int>(decode.launches), Joined(loads).c_str(),
                Joined(stores).c_str(), Joined(passes).c_str());
  }
}

// There are as many graphs as waits, which TrafficOf checks.
void PrintPrediction(const ModelTraffic& of, std::string_view name, const char* way, double waits) {
  std::printf("| %s%s | %.0f MB | %.0f MB | %.0f | %.0f | %.0f |", std::string(name).c_str(), way, of.weight_bytes * 1e-6,
              of.kv_bytes * 1e-6, of.launches, waits, waits);
  for (const Device& device : kDevices) {
    const double bytes = (of.weight_bytes + of.kv_bytes) / device.bytes_a_second;
    const double all = bytes + of.launches * device.node_seconds + waits * (device.graph_seconds + device.wait_seconds);
    std::printf(" %.1f ms, of which %.1f for bytes |", all * 1e3, bytes * 1e3);
  }
  std::printf("\n");
}

void PrintPredictions(std::span<const ModelTraffic> traffic) {
  std::printf("\n| a decoded token | weights | keys and values | kernels | graphs | waits |");
  for (const Device& device : kDevices) std::printf(" predicted, %s |", device.name);
  std::printf("\n|---|---|---|---|---|---|---|---|\n");
  for (size_t i = 0; i < traffic.size(); ++i) {
    PrintPrediction(traffic[i], kRealModels[i].name, ", layer by layer", traffic[i].waits);
    PrintPrediction(traffic[i], kRealModels[i].name, ", whole", 1);
  }
}

void Report() {
  PrintFormats();
  std::vector<ModelTraffic> traffic;
  for (const RealModel& model : kRealModels) {
    traffic.push_back(TrafficOf(model));
    PrintKernels(traffic.back(), model.name);
  }
  PrintPredictions(traffic);
}

}  // namespace
}  // namespace moed

int main() {
  moed::Report();
  return 0;
}
