// Operators of expressions on values, with Python's words for what they do not take.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/chat/value.h"

namespace moed::chat {

class Run;

enum class Operator : uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
std::string_view SignOf(Operator op);
absl::StatusOr<Value> Compute(Run& run, Operator op, const Value& left, const Value& right);
absl::StatusOr<Value> Negated(const Value& value);
absl::StatusOr<Value> Positive(const Value& value);

bool IsTrue(const Value& value);

}  // namespace moed::chat
