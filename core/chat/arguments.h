// Arguments of what is built in, by the names of its parameters.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/chat/iterator.h"
#include "core/chat/value.h"

namespace moed::chat {

class Arguments {
 public:
  // `parameters`: "old new count?", separated by spaces, the optional ones with a question mark. "*" takes whatever comes, as
  // `call()`.
  static absl::StatusOr<Arguments> Bind(std::string_view function, std::string_view parameters, Call call);

  // Null where it was not given.
  const Value* Find(size_t parameter) const;
  const Value& at(size_t parameter) const { return *Find(parameter); }
  // Where it was given and is not None.
  const Value* FindSome(size_t parameter) const;
  bool True(size_t parameter, bool otherwise = false) const;
  absl::StatusOr<Integer> Whole(size_t parameter, Integer otherwise = 0) const;
  // TypeError words of Python for anything but a text.
  absl::StatusOr<std::string> Text(size_t parameter, std::string_view otherwise = "") const;
  const Call& call() const { return call_; }
  Call& call() { return call_; }

 private:
  std::string_view function_;
  std::vector<std::optional<Value>> bound_;
  Call call_;  // of "*"
};

}  // namespace moed::chat
