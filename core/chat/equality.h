// Python's == and order of values.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "core/chat/value.h"

namespace moed::chat {

class Run;

// For keys of dicts, which are numbers, texts and small tuples.
bool AreEqual(const Value& a, const Value& b);
absl::StatusOr<bool> AreEqual(Run& run, const Value& a, const Value& b);
// `a` before `b`. Python's words for what has no order.
absl::StatusOr<bool> IsLess(Run& run, const Value& a, const Value& b);

enum class Order : uint8_t { kLess, kLessOrEqual, kGreater, kGreaterOrEqual };
absl::StatusOr<bool> InOrder(Run& run, Order order, const Value& a, const Value& b);
// Python's "in".
absl::StatusOr<bool> Contains(Run& run, const Value& container, const Value& item);

}  // namespace moed::chat
