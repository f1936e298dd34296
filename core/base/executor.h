// Who runs the loops of the compute kernels.
#pragma once

#include <memory>

#include "absl/functional/function_ref.h"

namespace moed {

// Runs body(begin, end) over disjoint ranges that cover [0, count), possibly on several threads at once, and returns when all are
// done. The split may differ from call to call: a body must give the same bits whatever it is.
// One ParallelFor at a time per executor (the engine's step loop is its only caller); bodies must not call ParallelFor.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual int threads() const = 0;
  // `grain`: ranges are multiples of it (the last one aside) and a loop of one grain runs on the caller.
  virtual void ParallelFor(int count, int grain, absl::FunctionRef<void(int begin, int end)> body) = 0;
};

// Everything on the caller.
class InlineExecutor final : public Executor {
 public:
  int threads() const override { return 1; }
  void ParallelFor(int count, int, absl::FunctionRef<void(int, int)> body) override {
    if (count > 0) body(0, count);
  }
};

// `threads` >= 1 including the caller. Workers spin for a few microseconds between loops, then sleep.
std::unique_ptr<Executor> MakeThreadPool(int threads);

}  // namespace moed
