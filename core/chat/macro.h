// What of a template can be called or iterated later: it keeps the scope that it was written in.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "core/chat/evaluator.h"
#include "core/chat/iterator.h"
#include "core/chat/syntax.h"

namespace moed::chat {

class Macro final : public Function {
 public:
  Macro(Evaluator& evaluator, const MacroSyntax& macro, ScopePointer scope)
      : Function("Macro"), evaluator_(evaluator), macro_(macro), scope_(std::move(scope)) {}
  absl::StatusOr<Value> Invoke(Run& run, Call call) override;
  absl::StatusOr<std::optional<Value>> Attribute(Run& run, std::string_view name) override;
  const MacroSyntax& macro() const { return macro_; }

 private:
  Evaluator& evaluator_;
  const MacroSyntax& macro_;
  const ScopePointer scope_;
};

// loop(items) within a recursive loop.
class LoopFunction final : public Function {
 public:
  LoopFunction(Evaluator& evaluator, const For& loop, int depth, ScopePointer scope)
      : evaluator_(evaluator), loop_(loop), depth_(depth), scope_(std::move(scope)) {}
  absl::StatusOr<Value> Invoke(Run& run, Call call) override;

 private:
  Evaluator& evaluator_;
  const For& loop_;
  const int depth_;
  const ScopePointer scope_;
};

// The items of {% for ... if ... %}: tested when they are asked for.
class FilteredItems final : public Iterator {
 public:
  FilteredItems(Evaluator& evaluator, const For& loop, std::shared_ptr<Iterator> items, ScopePointer scope)
      : Iterator(items->depth() + 1), evaluator_(evaluator), loop_(loop), items_(std::move(items)), scope_(std::move(scope)) {}
  absl::StatusOr<std::optional<Value>> Next(Run& run) override;

 private:
  Evaluator& evaluator_;
  const For& loop_;
  const std::shared_ptr<Iterator> items_;
  const ScopePointer scope_;
};

}  // namespace moed::chat
