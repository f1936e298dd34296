// What texts are made of, to programs.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/grammar/program.h"
#include "core/grammar/syntax.h"

namespace moed::grammar {

// `is_special`: whether there is a special token of this name. INVALID_ARGUMENT as core/grammar/grammar.h says.
absl::StatusOr<Pc> BuildSyntax(const Syntax& syntax, absl::FunctionRef<bool(std::string_view name)> is_special,
                               ProgramBuilder& builder, Pc next);

}  // namespace moed::grammar
