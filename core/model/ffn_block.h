// x += ffn(ffn_norm(x)): a dense block, or the routed experts of a layer with its shared expert. Router and shared expert may
// have norms of their own, and what is added may be normed too.
#pragma once

#include <optional>

#include "core/expert/provider.h"
#include "core/model/expert_block.h"
#include "core/model/processor_experts.h"
#include "core/model/step.h"
#include "core/model/weights.h"
#include "core/model/whole_step.h"

namespace moed {

class FfnBlock {
 public:
  // `processor` may be null.
  FfnBlock(Step& step, ComputeBackend* processor);

  void RunDense(LayerId layer, const LayerWeights& weights);
  // What the tokens choose, and the reads of it begin; all chunks leave the batch where the backend failed. Before RunExperts of
  // the layer, or sooner where the router reads something else.
  void ChooseExperts(LayerId layer, const LayerWeights& weights, ExpertProvider& provider);
  // Chunks whose tokens chose an expert that could not be read leave the batch with its error.
  void RunExperts(LayerId layer, const LayerWeights& weights, ExpertProvider& provider);
  // Between the layer before and `next`, of whose experts the provider may hear something sooner.
  void PreviewGate(LayerId next, const LayerWeights& weights, ExpertProvider& provider);
  // Before the layers of a step; then its end, once the backend was waited for, as WholeStep's.
  void BeginStep(ExpertProvider& provider) { whole_.Begin(provider); }
  bool runs_whole() const { return whole_.runs(); }
  void EndStep(ExpertProvider& provider, const absl::Status& done) { whole_.End(provider, done); }
  // Chunks whose status is an error leave the batch.
  void DropFailed();
  // After a Fence: gives back what the layers' operations read.
  void ReleaseExperts() {
    experts_.Release();
    if (beside_) beside_->Release();
  }

 private:
  // The norm of x, a block of rows, which becomes scratch.normed as well. Without a norm: x itself.
  Activations NormalizeAndPrepare(const float* norm, const float* bias, RowBlock block, InputForms forms,
                                  std::span<std::byte> storage);

  // Without a wait.
  void ChooseWhole(LayerId layer, const LayerWeights& weights);
  void RunWhole(LayerId layer, const LayerWeights& weights);
  // Logits of the router and of the shared expert's gate. Where it is the experts' as well, their input of all rows; else none.
  Activations ComputeRouter(LayerId layer, const LayerWeights& weights);
  // Tells what each token chooses, in scratch.routing. The one wait of a layer; a mask needs a second one. The backend's error.
  absl::Status Route(LayerId layer, const LayerWeights& weights, ExpertProvider& provider);
  // Enqueues what the host looks at, for the wait that follows.
  void ShowNormed();
  void CallGateHooks(LayerId layer, ExpertProvider& provider);
  absl::Status RouteMasked(LayerId layer, const LayerWeights& weights, ExpertProvider& provider);
  void MaskRouter(LayerId layer, ExpertProvider& provider);
  // A masked expert may cost its group the choice, and with it experts that the mask left, or raise shares of a softmax over
  // corrections that do not grow: that token is not masked.
  void UndoWhereMoreIsGone(int row);
  void GroupSlots(LayerId layer);
  // What an expert has no room for any more becomes a choice of none.
  void DropBeyondCapacity(int capacity);
  // Whether what the experts read is normed apart from what the router reads.
  bool NormsApart() const { return step_.spec.NormsAround() || step_.spec.RoutesEarly(); }
  // ComputeShared, and the input of all rows' experts.
  Activations PrepareAndShare(LayerId layer, const LayerWeights& weights);
  // Rows of scratch.normed are multiplied by the weights of their choices, one each.
  void WeighInputs();
  Activations PrepareExperts(const LayerWeights& weights);
  // To scratch.shared. `input`: that of the experts, which is the shared expert's where it has no norm of its own.
  void ComputeShared(LayerId layer, const LayerWeights& weights, const Activations& input);
  void Combine(LayerId layer, const LayerWeights& weights);
  // Normed before they join the shared expert and after that.
  void CombineNormed(const LayerWeights& weights, RowBlock block);
  // To scratch.shared.
  void ComputeBypass(LayerId layer, const LayerWeights& weights, const Activations& input);
  // What a token that no expert had room for reads is what it gets. After the experts.
  void PassThroughDropped();
  // They join the bypass and are normed.
  void CombineWithBypass(const LayerWeights& weights, RowBlock block);

  // What the projections of the rows' input read.
  InputForms FormsOf(const FfnWeights& weights) const;
  // What down reads: activation(gate x) * (up x), or activation(up x), at most a block.
  Activations Inner(const FfnWeights& weights, const Activations& input);

  float* NormedRow(int row) const { return &step_.scratch.normed[static_cast<size_t>(row) * step_.spec.hidden]; }
  std::span<const float> NormedOnHost(int row) const {
    const size_t hidden = step_.spec.hidden;
    return step_.scratch.normed_on_host.subspan(row * hidden, hidden);
  }

  Step& step_;
  ExpertBlock experts_;
  std::optional<ProcessorExperts> beside_;
  WholeStep whole_;
  Activations routed_;  // of the layer whose experts are chosen: what ComputeRouter made
};

}  // namespace moed
