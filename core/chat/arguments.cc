#include "core/chat/arguments.h"

#include <algorithm>

#include "absl/strings/str_split.h"
#include "core/base/status.h"
#include "core/chat/arithmetic.h"

namespace moed::chat {

absl::StatusOr<Arguments> Arguments::Bind(std::string_view function, std::string_view parameters, Call call) {
  Arguments arguments;
  arguments.function_ = function;
  if (parameters == "*") {
    arguments.call_ = std::move(call);
    return arguments;
  }
  std::vector<std::string> names = absl::StrSplit(ToAbsl(parameters), ' ', absl::SkipEmpty());
  std::vector<bool> optional;
  for (std::string& name : names) {
    optional.push_back(name.back() == '?');
    if (optional.back()) name.pop_back();
  }
  if (call.positional.size() > names.size()) {
    return InvalidArgument(function, "() takes at most ", names.size(), " arguments (", call.positional.size(), " given)");
  }
  arguments.bound_.resize(names.size());
  for (size_t i = 0; i < call.positional.size(); ++i) arguments.bound_[i] = std::move(call.positional[i]);
  for (auto& [keyword, value] : call.keywords) {
    const auto found = std::find(names.begin(), names.end(), keyword);
    if (found == names.end()) return InvalidArgument(function, "() got an unexpected keyword argument '", keyword, "'");
    auto& slot = arguments.bound_[static_cast<size_t>(found - names.begin())];
    if (slot) return InvalidArgument(function, "() got multiple values for argument '", keyword, "'");
    slot = std::move(value);
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (!arguments.bound_[i] && !optional[i]) {
      return InvalidArgument(function, "() missing required argument: '", names[i], "'");
    }
  }
  return arguments;
}

const Value* Arguments::Find(size_t parameter) const {
  return parameter < bound_.size() && bound_[parameter] ? &*bound_[parameter] : nullptr;
}

const Value* Arguments::FindSome(size_t parameter) const {
  const Value* value = Find(parameter);
  return value != nullptr && !value->is(Kind::kNone) ? value : nullptr;
}

bool Arguments::True(size_t parameter, bool otherwise) const {
  const Value* value = Find(parameter);
  return value == nullptr ? otherwise : IsTrue(*value);
}

absl::StatusOr<Integer> Arguments::Whole(size_t parameter, Integer otherwise) const {
  const Value* value = Find(parameter);
  if (value == nullptr) return otherwise;
  if (value->is(Kind::kUndefined)) return InvalidArgument(value->as<Undefined>().Words());
  if (!value->is_whole()) return InvalidArgument("'", TypeName(*value), "' object cannot be interpreted as an integer");
  return value->as_integer();
}

absl::StatusOr<std::string> Arguments::Text(size_t parameter, std::string_view otherwise) const {
  const Value* value = Find(parameter);
  if (value == nullptr) return std::string(otherwise);
  if (value->is(Kind::kText)) return value->text();
  return InvalidArgument(function_, "() argument ", parameter + 1, " must be str, not ", TypeName(*value));
}

}  // namespace moed::chat
