// Variables of a run, by scope.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/chat/syntax.h"
#include "core/chat/value.h"

namespace moed::chat {

// Scopes see what those around them hold, and set only what is their own. Macros keep the scope they were written in.
class Scope final : public Counted {
 public:
  explicit Scope(std::shared_ptr<Scope> around) : around_(std::move(around)) {}

  const Value* Find(NameId name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->around_.get()) {
      for (const auto& [own, value] : scope->values_) {
        if (own == name) return &value;
      }
    }
    return nullptr;
  }
  void Set(NameId name, Value value) {
    for (auto& [own, old] : values_) {
      if (own == name) {
        old = std::move(value);
        return;
      }
    }
    values_.emplace_back(name, std::move(value));
    if (values_.size() <= counted_) return;
    CountMore(sizeof(values_[0]));
    counted_ = values_.size();
  }
  void Clear() { values_.clear(); }  // what they took is taken again
  void Drop() override {
    values_.clear();
    around_.reset();
  }

 private:
  std::shared_ptr<Scope> around_;
  std::vector<std::pair<NameId, Value>> values_;
  size_t counted_ = 0;  // of them, the most there were
};

}  // namespace moed::chat
