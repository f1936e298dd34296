// One rendering: what it may use, and what it makes. Not thread-safe.
#pragma once

#include <cstddef>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/status.h"
#include "core/chat/limits.h"
#include "core/chat/value.h"

namespace moed::chat {

class Run {
 public:
  // `stopping`: as RenderOptions has it.
  Run(const Limits& limits, const std::tm& now, std::function<bool()> stopping = {})
      : limits_(limits), now_(now), stopping_(std::move(stopping)) {}
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // All of these are RESOURCE_EXHAUSTED, naming the limit, where it is reached. Work is CANCELLED where somebody stops the run.
  absl::Status Work(size_t steps);
  absl::Status WorkOn(size_t bytes) { return Work(1 + bytes / kBytesAStep); }
  absl::Status Fits(size_t bytes) const;  // beside what there is already
  size_t room() const { return live_bytes_ >= limits_.memory_bytes ? 0 : limits_.memory_bytes - live_bytes_; }
  absl::Status FitsOutput(size_t bytes) const;

  absl::StatusOr<Value> NewText(MarkedText text, bool markup = false);
  absl::StatusOr<Value> NewOwnText(std::string_view text) { return NewText(MarkedText::Own(std::string(text))); }
  absl::StatusOr<Value> NewSequence(Flavor flavor, std::vector<Value> items);
  absl::StatusOr<Value> NewList(std::vector<Value> items) { return NewSequence(Flavor::kList, std::move(items)); }
  absl::StatusOr<Value> NewTuple(std::vector<Value> items) { return NewSequence(Flavor::kTuple, std::move(items)); }
  absl::StatusOr<Value> NewDict(std::vector<Dict::Entry> entries);
  // Anything else, which takes `bytes`.
  template <class T, class... Arguments>
  absl::StatusOr<std::shared_ptr<T>> Make(size_t bytes, Arguments&&... arguments) {
    MOED_RETURN_IF_ERROR(Fits(bytes));
    auto made = std::make_shared<T>(std::forward<Arguments>(arguments)...);
    made->CountInto(live_bytes_, bytes + kBytesAnObject);
    return made;
  }
  template <class T, class... Arguments>
  absl::StatusOr<Value> New(size_t bytes, Arguments&&... arguments) {
    MOED_ASSIGN_OR_RETURN(std::shared_ptr<T> made, Make<T>(bytes, std::forward<Arguments>(arguments)...));
    if (const Value value(made); DepthOf(value) > kMostDepth) return TooDeep();
    return Value(std::move(made));
  }
  // What may come to refer to itself lets go of it at the end of the run.
  void Keep(std::shared_ptr<Counted> object) {
    kept_.push_back(std::move(object));
    live_bytes_ += sizeof(kept_[0]);
  }

  const std::tm& now() const { return now_; }

  // Levels of evaluation under way. Enter may fail; Leave belongs to every Enter that did not.
  absl::Status Enter();
  void Leave() { --level_; }

 private:
  static constexpr size_t kBytesAStep = 64;
  static constexpr size_t kStepsBetweenQuestions = 1 << 14;
  static constexpr size_t kBytesAnObject = 48;
  static constexpr int kMostDepth = 200;  // of containers
  static absl::Status TooDeep();

  const Limits limits_;
  const std::tm now_;
  const std::function<bool()> stopping_;
  size_t steps_ = 0;
  size_t asked_at_ = 0;  // steps, when stopping_ was asked
  int level_ = 0;
  size_t live_bytes_ = 0;
  std::vector<std::shared_ptr<Counted>> kept_;
};

}  // namespace moed::chat
