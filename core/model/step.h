// What the blocks of a layer share during one step.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <numeric>

#include "absl/status/status.h"
#include "core/base/trace.h"
#include "core/kernels/backend.h"
#include "core/model/batch.h"
#include "core/model/expert_formats.h"
#include "core/model/kv_pool.h"
#include "core/model/scratch.h"
#include "core/model/spec.h"
#include "core/model/weights.h"

namespace moed {

// Rows [begin, begin + count) of the step's batch.
struct RowBlock {
  int begin = 0;
  int count = 0;
};

class StepWatcher;

struct Step {
  const ModelSpec& spec;
  ComputeBackend& backend;
  KvPool& kv;
  Trace* trace;  // may be null
  ExpertFormats expert_formats;
  InputForms expert_inputs;  // that experts and shared experts read
  Scratch scratch;
  Batch batch;
  absl::Status failure;  // of the backend, since the step began: nothing that it computed is of use
  // Products with matrices of the trunk are those of halves: every sequence of the step allows it, and there are rows enough.
  bool fast_matmul = false;
  StepWatcher* watcher = nullptr;  // of the step

  // Waits for the backend: `failure` as it is then.
  absl::Status Fence() {
    failure.Update(backend.Fence());
    return failure;
  }
  // Products with the trunk's matrices. Exact are always those that choose experts or feed Mamba-2's states, and the last
  // `exact` ones here: what says how fast a state decays.
  void Multiply(std::span<MatMulJob> jobs, size_t exact = 0) const {
    if (fast_matmul) {
      for (MatMulJob& job : jobs.first(jobs.size() - exact)) job.halves = scratch.halves;
    }
    backend.MatMul(jobs);
  }
  // body(block) over the batch's rows, at most scratch.block_rows at a time.
  template <class Body>
  void ForBlocks(const Body& body) const {
    for (int row = 0; row < batch.rows(); row += scratch.block_rows) {
      body(RowBlock{row, std::min(scratch.block_rows, batch.rows() - row)});
    }
  }
  // y = x, (rows, hidden), which are apart. An operation like others: it needs no wait.
  void CopyRows(const float* x, int rows, float* y) const {
    const std::span<int32_t> all = scratch.slot_places.first(static_cast<size_t>(rows));  // whose own content comes later
    std::iota(all.begin(), all.end(), 0);
    backend.GatherRows(x, spec.hidden, all, y);
  }
  // What down reads: activation(gate) * up, or activation(up), of scratch.gate and scratch.up (rows, cols).
  Activations PrepareInner(int rows, int cols, InputForms forms) const {
    return backend.ActivateAndPrepare(ActivationOf(spec), scratch.gate.data(), scratch.up.data(), rows, cols, forms,
                                      scratch.inner_storage);
  }
  // To logits (rows, experts): what the router's scores are made of.
  MatMulJob RouterJob(const LayerWeights& weights, const Activations& input, float* logits) const {
    return {weights.router, &input, logits, spec.experts, weights.router_bias, static_cast<float>(spec.router_logits_scale)};
  }
  // Rows of x, (rows, hidden), become their norm.
  void Normalize(float* x, const float* weight, int rows) const {
    backend.Normalize({.weight = weight, .eps = spec.rms_eps}, x, rows, spec.hidden, x);
  }
  // y = the norm of rows of x, (rows, hidden), prepared; may alias. A layer norm where there is a bias.
  Activations NormalizeAndPrepare(const float* x, const float* weight, const float* bias, int rows, float* y, InputForms forms,
                                  std::span<std::byte> storage) const {
    return backend.NormalizeAndPrepare({weight, bias, spec.rms_eps}, x, rows, spec.hidden, y, forms, storage);
  }
  // What the matrices of attention, or of what has its place, read: the norm of a block's rows of the residual stream, or those
  // rows.
  Activations MixerInput(const LayerWeights& weights, RowBlock block, std::initializer_list<FormatId> formats) const {
    if (weights.attn_norm == nullptr) {
      return backend.Prepare(Residual(block), block.count, spec.hidden, spec.hidden, InputForms::Of(formats),
                             scratch.block_storage);
    }
    return NormalizeAndPrepare(Residual(block), weights.attn_norm, weights.attn_norm_bias, block.count, scratch.normed.data(),
                               InputForms::Of(formats), scratch.block_storage);
  }
  // Rows of the residual stream get what a block, (rows, hidden), adds to it.
  void AddToResidual(float* x, const float* block, int rows) const {
    const int64_t n = int64_t{rows} * spec.hidden;
    if (spec.residual_scale == 1) return backend.Add(x, block, n);
    backend.AddScaled(x, block, static_cast<float>(spec.residual_scale), n);
  }
  // A block's rows of the residual stream get `weights` * input + bias, which may be null, or the norm of that.
  void ProjectToResidual(const MatrixView& weights, const float* bias, const Activations& input, RowBlock block,
                         const float* norm = nullptr) const {
    if (norm == nullptr) {
      MatMulJob jobs[] = {{weights, &input, Residual(block), spec.hidden, bias, static_cast<float>(spec.residual_scale), true}};
      return Multiply(jobs);
    }
    float* const projected = scratch.projected.data();
    MatMulJob jobs[] = {{weights, &input, projected, spec.hidden, bias}};
    Multiply(jobs);
    Normalize(projected, norm, block.count);
    AddToResidual(Residual(block), projected, block.count);
  }
  // They get o * scratch.attended, (rows, o.cols), + bias, which may be null, or the norm of that.
  void ProjectAttended(const MatrixView& o, const float* bias, RowBlock block, const float* norm = nullptr) const {
    const Activations input =
        backend.Prepare(scratch.attended.data(), block.count, o.cols, o.cols, InputForms::Of({o.format}), scratch.inner_storage);
    ProjectToResidual(o, bias, input, block, norm);
  }
  float* Residual(RowBlock block) const { return &scratch.x[static_cast<size_t>(block.begin) * spec.hidden]; }
  // What feed-forward blocks norm: the residual stream, as it was before the layer's attention where both are parallel.
  const float* FfnInput(RowBlock block) const {
    return &(spec.parallel ? scratch.layer_input : scratch.x)[static_cast<size_t>(block.begin) * spec.hidden];
  }
  bool one_block() const { return batch.rows() <= scratch.block_rows; }
};

}  // namespace moed
