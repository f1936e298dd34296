// What moed-plan hobbit has routed of a text so far, on disk: the same command takes it up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/expert/learning/learned_state.h"
#include "core/expert/policies/hobbit_calibration.h"
#include "tools/plan/loss_evaluator.h"

namespace moed {

// The routing of a decoder's first windows, each of them a sequence. `text` outlives it.
class UnfinishedRouting {
 public:
  UnfinishedRouting(const std::string& plan, const LossEvaluator& text);

  const std::string& path() const { return file_.path; }
  // Replaces what was there before once it is whole.
  absl::Status Write(const HobbitRouting& routing) const;
  // Of no window where nothing of this store, text and version is there. Says on stderr what is taken up or not.
  HobbitRouting TakeUp() const;
  void Remove() const;

 private:
  size_t ChoicesOfToken() const { return static_cast<size_t>(layers_) * static_cast<size_t>(top_k_); }
  void Visit(LearnedState& state, int32_t& windows, std::vector<HobbitRouting::Choice>& choices) const;

  const LossEvaluator& text_;
  const LearnedFile file_;
  const int layers_;
  const int top_k_;
};

}  // namespace moed
