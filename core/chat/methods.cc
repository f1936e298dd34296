#include "core/chat/methods.h"

#include <algorithm>
#include <iterator>

#include "core/base/status.h"
#include "core/chat/run.h"

namespace moed::chat {
namespace {

class BoundMethod final : public Function {
 public:
  BoundMethod(Value self, const Method& method)
      : Function("builtin_function_or_method"), self_(std::move(self)), method_(method) {}
  absl::StatusOr<Value> Invoke(Run& run, Call call) override {
    MOED_ASSIGN_OR_RETURN(const Arguments arguments, Arguments::Bind(method_.name, method_.parameters, std::move(call)));
    MOED_RETURN_IF_ERROR(run.WorkOn(self_.is(Kind::kText) ? self_.text().size() : 0));
    return method_.run(run, self_, arguments);
  }

 private:
  const Value self_;
  const Method& method_;
};

bool IsOneOf(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

absl::StatusOr<std::optional<Value>> MethodOf(Run& run, const Value& value, std::string_view name) {
  const Method* method = value.is(Kind::kText) ? FindTextMethod(name) : FindContainerMethod(value, name);
  if (method == nullptr) return std::nullopt;
  MOED_ASSIGN_OR_RETURN(Value bound, run.New<BoundMethod>(sizeof(BoundMethod), value, *method));
  return bound;
}

bool IsUnsafeMethod(const Value& value, std::string_view name) {
  if (value.is(Kind::kDict)) return IsOneOf(name, {"clear", "pop", "popitem", "setdefault", "update"});
  if (!value.is(Kind::kSequence) || value.as<Sequence>().flavor != Flavor::kList) return false;
  return IsOneOf(name, {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"});
}

bool IsMissingMethod(std::string_view name) {
  return IsOneOf(name, {"encode", "translate", "maketrans", "fromkeys", "format_map", "as_integer_ratio", "bit_length",
                        "bit_count", "to_bytes", "from_bytes", "conjugate", "hex", "is_integer"});
}

}  // namespace moed::chat
