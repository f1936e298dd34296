// Second moments of what experts read while a text went through a model: what the quantizer gptq weighs errors by.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/executor.h"
#include "core/base/ids.h"
#include "core/expert/learning/learned_state.h"
#include "core/kernels/activations.h"
#include "core/model/spec.h"
#include "core/quant/error_feedback.h"

namespace moed {

// Sums over the rows of experts. The inputs of a layer's gates and ups are kept for all its experts together; those of downs for
// every expert, since what its columns are is its own. Not synchronised.
class ExpertMoments {
 public:
  // Columns that are related to each other (ErrorFeedback): of inputs, and of what downs read.
  static constexpr int kInputSpan = 4096;
  static constexpr int kInnerSpan = 256;

  static constexpr const char* kWhole = "moments";  // a source: all of a text

  explicit ExpertMoments(const ModelSpec& spec);

  // On the executor; the same sums whatever its threads, and in whatever order a layer's experts come: their inputs are held
  // until a call for another layer, or Settle, which has to be called before anything is asked or saved.
  void Add(LayerId layer, int32_t expert, const Activations& input, const Activations& inner, Executor& executor);
  void Settle(Executor& executor);

  // Of gate and up of the layer's experts.
  ErrorFeedback OfInputs(size_t moe_layer) const;
  // Of an expert's down. The fewer rows it had, the more its columns count as what the layer's do on average, unrelated.
  ErrorFeedback OfInner(size_t moe_layer, int expert) const;
  uint64_t rows(size_t moe_layer) const;  // of all its experts
  size_t experts_without_rows() const;
  uint64_t hash() const;  // of the sums

  // A file is of an architecture, not of its weights. `source`: what the sums are of; `windows` of it are in them.
  absl::Status Save(const std::string& path, const std::string& source, int32_t windows);
  // How many windows are in the sums. NOT_FOUND: there is no file; FAILED_PRECONDITION: of another architecture or source;
  // DATA_LOSS, OUT_OF_RANGE: as TakeLearned. Then nothing is taken.
  absl::StatusOr<int32_t> Take(const std::string& path, const std::string& source);

 private:
  void Visit(LearnedState& state, int32_t& windows);
  size_t LayerIndex(LayerId layer) const { return static_cast<size_t>(layer_index_[static_cast<size_t>(layer.value())]); }

  int experts_, hidden_, ffn_;
  uint64_t identity_;
  std::vector<int> layer_index_;           // by layer; -1: dense
  std::vector<uint64_t> rows_;             // [MoE layer][expert]
  std::vector<std::vector<float>> input_;  // [MoE layer]: ErrorFeedback::SpanFloats
  std::vector<std::vector<float>> inner_;  // [MoE layer]: of one expert after the other
  std::vector<float> values_;              // of the rows that are added

  size_t held_layer_ = 0;                            // MoE layer
  std::map<int32_t, std::vector<float>> held_rows_;  // by expert: (rows, hidden); summed in this order
};

}  // namespace moed
