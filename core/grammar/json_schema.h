// JSON schemas to programs.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "core/grammar/program.h"

namespace moed::grammar {

// Grammar::FromJsonSchema says what is supported and what the texts are.
absl::StatusOr<Pc> BuildJsonSchema(std::string_view schema, ProgramBuilder& builder, Pc next);

}  // namespace moed::grammar
