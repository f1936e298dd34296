// What yields values one after the other, and what can be called.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/chat/value.h"

namespace moed::chat {

class Run;

// Python's iterators: each value comes once, computed when it is asked for.
class Iterator : public Object {
 public:
  // `depth`: of iterators and containers within each other, this one included. `type_name`: Python's.
  explicit Iterator(int depth, std::string_view type_name = "generator")
      : Object(Kind::kIterator), depth_(depth), type_name_(type_name) {}
  virtual absl::StatusOr<std::optional<Value>> Next(Run& run) = 0;  // nullopt at the end
  int depth() const { return depth_; }
  std::string_view type_name() const { return type_name_; }

 private:
  const int depth_;
  const std::string_view type_name_;
};

struct Call {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;
};

class Function : public Object {
 public:
  explicit Function(std::string_view type_name = "function") : Object(Kind::kFunction), type_name_(type_name) {}
  virtual absl::StatusOr<Value> Invoke(Run& run, Call call) = 0;
  // nullopt for a name that it does not have.
  virtual absl::StatusOr<std::optional<Value>> Attribute(Run&, std::string_view) { return std::nullopt; }
  std::string_view type_name() const { return type_name_; }

 private:
  const std::string_view type_name_;
};

// An iterator over `value`; itself where it is one. Python's words for what cannot be iterated.
absl::StatusOr<std::shared_ptr<Iterator>> Iterate(Run& run, const Value& value);
// All that is left to iterate.
absl::StatusOr<std::vector<Value>> Elements(Run& run, const Value& value);
bool IsIterable(const Value& value);

}  // namespace moed::chat
