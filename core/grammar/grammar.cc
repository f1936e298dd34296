#include "core/grammar/grammar.h"

#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/grammar/json_schema.h"
#include "core/grammar/regex.h"

namespace moed::grammar {
namespace {

absl::Status CheckSize(std::string_view source) {
  if (source.size() <= kMostSourceBytes) return absl::OkStatus();
  return InvalidArgument(source.size(), " bytes, at most ", kMostSourceBytes, " are allowed");
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::Finish(ProgramBuilder builder, Pc start) {
  if (builder.full()) return InvalidArgument("its automaton has more than ", ProgramBuilder::kMostInstructions, " instructions");
  Program program = std::move(builder).Finish(start);
  if (program.code[program.start].kind == Instruction::Kind::kDead) return InvalidArgument("no text can be what it says");
  return std::shared_ptr<const Grammar>(new Grammar(std::move(program)));
}

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::FromRegex(std::string_view pattern) {
  MOED_RETURN_IF_ERROR(CheckSize(pattern));
  ProgramBuilder builder;
  MOED_ASSIGN_OR_RETURN(const Pc start, BuildRegex(pattern, false, Encoding::kUtf8, builder, ProgramBuilder::kMatch));
  return Finish(std::move(builder), start);
}

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::FromJsonSchema(std::string_view schema) {
  MOED_RETURN_IF_ERROR(CheckSize(schema));
  ProgramBuilder builder;
  MOED_ASSIGN_OR_RETURN(const Pc start, BuildJsonSchema(schema, builder, ProgramBuilder::kMatch));
  return Finish(std::move(builder), start);
}

std::shared_ptr<const Grammar> Grammar::AnyJsonObject() {
  auto grammar = FromJsonSchema(R"({"type": "object"})");
  MOED_CHECK(grammar.ok());
  return *std::move(grammar);
}

}  // namespace moed::grammar
