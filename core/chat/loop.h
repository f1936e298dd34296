// The variable "loop" of a for loop, and the iteration itself.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/chat/iterator.h"
#include "core/chat/value.h"

namespace moed::chat {

// Looks one item ahead only when it is asked for what lies ahead, as Jinja does: items may be computed while the body runs.
class Loop final : public Object {
 public:
  // `iterated`: what was iterated, whose length is the loop's where it has one. `recurse`: null, or what renders the loop's body
  // for other items.
  Loop(Value iterated, std::shared_ptr<Iterator> items, int depth, std::shared_ptr<Function> recurse)
      : Object(Kind::kLoop),
        iterated_(std::move(iterated)),
        items_(std::move(items)),
        depth_(depth),
        recurse_(std::move(recurse)) {}

  absl::StatusOr<std::optional<Value>> Next(Run& run);
  // Null for a name that loops do not have.
  absl::StatusOr<std::optional<Value>> Attribute(Run& run, std::string_view name);
  absl::StatusOr<Value> Cycle(const Call& call) const;
  absl::StatusOr<Value> Changed(Run& run, Call call);
  const std::shared_ptr<Function>& recurse() const { return recurse_; }
  int depth() const { return depth_; }  // 0 for a loop that was not called from within itself
  std::string Shown() const;
  void Drop() override { last_changed_.reset(); }

 private:
  absl::StatusOr<bool> HasNext(Run& run);
  absl::StatusOr<int64_t> Length(Run& run);

  const Value iterated_;
  std::shared_ptr<Iterator> items_;
  const int depth_;
  const std::shared_ptr<Function> recurse_;
  int64_t index0_ = -1;
  std::optional<int64_t> length_;
  std::optional<Value> after_, current_, before_;
  std::optional<std::vector<Value>> last_changed_;
};

}  // namespace moed::chat
