// A dictionary that was not counted to its end, on disk: the same command takes it up.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/expert/learning/activation_paths.h"
#include "tools/plan/dictionary_planner.h"

namespace moed {

// After whole windows.
struct DictionaryState {
  int windows = 0;
  uint64_t tokens = 0;
  DictionaryReport report;
  std::unique_ptr<ActivationPaths> paths;
};

// FILE.unfinished, and beside it the table that it names. One writer at a time.
class UnfinishedDictionary {
 public:
  // `identity`: of everything that the counts depend on.
  UnfinishedDictionary(std::string file, uint64_t identity) : file_(std::move(file)), identity_(identity) {}

  // Whole or not at all: what was there before stays until then.
  absl::Status Write(const DictionaryState& state);
  // Without paths: there is none. FAILED_PRECONDITION: of another identity; DATA_LOSS: damaged.
  absl::StatusOr<DictionaryState> Read(int layers, int experts) const;
  // Once it is not needed any more.
  void Remove() const;

 private:
  std::string Description() const { return file_ + ".unfinished"; }
  std::string Table(int windows) const;

  const std::string file_;
  const uint64_t identity_;
};

}  // namespace moed
