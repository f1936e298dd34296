// The global functions' objects that remember something: cycler(...) and joiner(...).
#pragma once

#include <string>
#include <vector>

#include "core/chat/iterator.h"
#include "core/chat/value.h"

namespace moed::chat {

class Cycler final : public Object {
 public:
  explicit Cycler(std::vector<Value> items) : Object(Kind::kCycler), items(std::move(items)) {}
  void Drop() override { items.clear(); }
  std::vector<Value> items;  // not empty
  size_t at = 0;
};

// Nothing the first time it is called, then the separator.
class Joiner final : public Function {
 public:
  explicit Joiner(Value separator) : Function("Joiner"), separator_(std::move(separator)) {}
  absl::StatusOr<Value> Invoke(Run& run, Call call) override;

 private:
  const Value separator_;
  bool used_ = false;
};

}  // namespace moed::chat
