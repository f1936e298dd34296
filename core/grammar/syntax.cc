#include "core/grammar/syntax.h"

#include "core/base/status.h"
#include "core/grammar/grammar.h"

namespace moed::grammar {

absl::StatusOr<Syntax> SyntaxOf(const TextFormat& format, std::string_view field) {
  if (format.source.size() > kMostSourceBytes) {
    return FieldRefusal(field, InvalidArgument(format.source.size(), " bytes, at most ", kMostSourceBytes, " are allowed"));
  }
  Syntax syntax;
  if (format.kind == TextFormat::Kind::kRegex) {
    syntax = Regex(format.source);
  } else {
    auto schema = ReadSchema(format.kind == TextFormat::Kind::kJsonObject ? R"({"type": "object"})" : format.source);
    if (!schema.ok()) return FieldRefusal(field, schema.status());
    syntax = SchemaAt(std::make_shared<const Json>(*std::move(schema)), "");
  }
  syntax.field = field;
  return syntax;
}

absl::Status FieldRefusal(std::string_view field, const absl::Status& status) {
  return field.empty() ? status : InvalidArgument(field, ": ", status.message());
}

}  // namespace moed::grammar
