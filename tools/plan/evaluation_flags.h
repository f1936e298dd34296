// The flags that every planner has which measures losses: which store, which text, how much of it, with what.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/plan/loss_evaluator.h"

namespace CLI {
class App;
}

namespace moed {

struct EvaluationFlags {
  std::string store;
  std::string text;
  int tokens = 4096;
  int window = 256;
  int threads = 0;    // 0: one per processor
  int cache_mib = 0;  // 0: what all experts take, half of the memory that is left at most

  void Define(CLI::App& command);
  absl::StatusOr<std::string> Contents() const;  // of the text's file
  // Errors name the store or the text's file.
  absl::StatusOr<std::unique_ptr<LossEvaluator>> Open() const;
  // For what is counted token by token through all layers. FAILED_PRECONDITION for an encoder-decoder.
  absl::StatusOr<std::unique_ptr<LossEvaluator>> OpenDecoder() const;
};

}  // namespace moed
