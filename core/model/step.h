// What the blocks of a layer share during one step.
#pragma once

#include <algorithm>

#include "absl/status/status.h"
#include "core/base/trace.h"
#include "core/kernels/backend.h"
#include "core/model/batch.h"
#include "core/model/expert_formats.h"
#include "core/model/kv_pool.h"
#include "core/model/scratch.h"
#include "core/model/spec.h"

namespace moed {

// Rows [begin, begin + count) of the step's batch.
struct RowBlock {
  int begin = 0;
  int count = 0;
};

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

  // Waits for the backend: `failure` as it is then.
  absl::Status Fence() {
    failure.Update(backend.Fence());
    return failure;
  }
  // body(block) over the batch's rows, at most scratch.block_rows at a time.
  template <class Body>
  void ForBlocks(const Body& body) const {
    for (int row = 0; row < batch.rows(); row += scratch.block_rows) {
      body(RowBlock{row, std::min(scratch.block_rows, batch.rows() - row)});
    }
  }
  // activation(gate) * up, or activation(up), n elements of scratch.gate and scratch.up: what down reads, in the place of one.
  const float* Activate(int64_t n) {
    float* const gate = scratch.gate.data();
    float* const up = scratch.up.data();
    if (!spec.gated()) {
      backend.SquaredRelu(up, n);
      return up;
    }
    if (spec.activation == Activation::kGelu) {
      backend.GeGlu(gate, up, n, gate);
    } else if (spec.swiglu_limits) {
      const auto [alpha, limit] = *spec.swiglu_limits;
      backend.ClampedSwiGlu({static_cast<float>(alpha), static_cast<float>(limit)}, gate, up, n, gate);
    } else {
      backend.SwiGlu(gate, up, n, gate);
    }
    return gate;
  }
  // logits (rows, experts): what the router's scores are made of, from what its matrix makes. The bias may be null.
  void FinishRouterLogits(float* logits, const float* bias, int rows) const {
    const auto scale = static_cast<float>(spec.router_logits_scale);
    if (scale != 1) backend.Scale(logits, scale, int64_t{rows} * spec.experts);
    if (bias != nullptr) backend.AddBias(logits, bias, rows, spec.experts);
  }
  // y = the norm of rows of x, (rows, hidden); may alias. A layer norm where there is a bias.
  void Normalize(const float* x, const float* weight, const float* bias, int rows, float* y) const {
    if (bias == nullptr) return backend.RmsNorm(x, weight, spec.rms_eps, rows, spec.hidden, y);
    backend.LayerNorm(x, weight, bias, spec.rms_eps, rows, spec.hidden, y);
  }
  // Rows of the residual stream get what a block, (rows, hidden), adds to it.
  void AddToResidual(float* x, const float* block, int rows) const {
    const int64_t n = int64_t{rows} * spec.hidden;
    if (spec.residual_scale == 1) return backend.Add(x, block, n);
    backend.AddScaled(x, block, static_cast<float>(spec.residual_scale), n);
  }
  // Rows of the residual stream get o * scratch.attended, (rows, o.cols), + bias, which may be null, or the norm of that.
  void ProjectToResidual(const MatrixView& o, const float* bias, RowBlock block, const float* norm = nullptr) {
    const Activations input =
        backend.Prepare(scratch.attended.data(), block.count, o.cols, o.cols, InputForms::Of({o.format}), scratch.inner_storage);
    const MatMulJob jobs[] = {{o, &input, scratch.projected.data(), spec.hidden}};
    backend.MatMul(jobs);
    if (bias != nullptr) backend.AddBias(scratch.projected.data(), bias, block.count, spec.hidden);
    if (norm != nullptr) Normalize(scratch.projected.data(), norm, nullptr, block.count, scratch.projected.data());
    AddToResidual(&scratch.x[static_cast<size_t>(block.begin) * spec.hidden], scratch.projected.data(), block.count);
  }
  bool one_block() const { return batch.rows() <= scratch.block_rows; }
};

}  // namespace moed
