// JSON schemas to programs.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/grammar/json_rules.h"
#include "core/grammar/program.h"
#include "core/grammar/schema_text.h"

namespace moed::grammar {

// The schemas of one JSON text; what they refer to is compiled once.
class SchemaCompiler {
 public:
  // All must outlive it.
  SchemaCompiler(const Json& root, ProgramBuilder& builder, JsonRules& rules);
  ~SchemaCompiler();

  // The one at a JSON pointer, "" for the whole text. Grammar::FromJsonSchema says what is supported and what the texts are.
  absl::StatusOr<Pc> Build(std::string_view pointer, Pc next);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moed::grammar
