// Layers of a released model at their real shape, with random weights, computed by the CUDA kernels in emulation, whose accesses
// are counted.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "core/kernels/cuda/emulation/runtime.h"
#include "core/quant/format_id.h"

namespace moed {

// Of the layers of a model that are alike.
struct LayerKind {
  std::string_view layer_type;  // of config.json; empty: it has none
  int count = 0;
};

struct RealModel {
  std::string_view name;
  std::string_view config;  // members of config.json, but for the number of layers, their types and the vocabulary
  LayerKind kinds[2];       // the second may be none
  int vocabulary = 0;
  FormatId experts;  // the other matrices are q8, the router bf16
};
extern const RealModel kRealModels[2];

// What a step asks of the device.
struct StepTraffic {
  std::map<std::string, emulation::KernelTraffic> kernels;  // by name
  uint64_t waits = 0;                                       // of the host
};

struct LayerTraffic {
  StepTraffic layer;  // of one
  StepTraffic rest;   // embedding, final norm, and the logits of kLogitsRows tokens of the vocabulary
};

// How the launches of a step of both layers reach the device.
struct StepLaunches {
  uint64_t single = 0;
  uint64_t graphs = 0;
  uint64_t waits = 0;
};

constexpr int kLogitsRows = 4096;

// Two layers alike; keys and values in f16.
class LayerModel {
 public:
  // `logs`: accesses are counted, which takes time.
  LayerModel(const RealModel& model, const LayerKind& kind, bool logs);
  ~LayerModel();
  // Of `tokens` behind `position` others.
  LayerTraffic Step(int position, int tokens);
  // Of a decoded token that has come twice before. `whole`: it is told where all experts lie.
  StepLaunches RepeatedStep(int position, bool whole);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace moed
