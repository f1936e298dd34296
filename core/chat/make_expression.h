// Puts expressions together.
#pragma once

#include "absl/status/statusor.h"
#include "core/chat/syntax.h"

namespace moed::chat {

// INVALID_ARGUMENT where it is too deep to be evaluated.
absl::StatusOr<ExpressionPtr> MakeExpression(int line, decltype(Expression::node) node);

}  // namespace moed::chat
