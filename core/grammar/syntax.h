// What a text is made of: fixed text, special tokens, expressions and schemas, one after another or one of several.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/grammar/program.h"
#include "core/grammar/schema_text.h"

namespace moed::grammar {

struct Syntax {
  enum class Kind : uint8_t {
    kSequence,      // all parts; none: the empty text
    kAlternatives,  // one of the parts
    kRepeat,        // the only part, from `least` to `most` times
    kText,          // `text`, by tokens of any kind but special ones
    kMarker,        // the special token `text` where the vocabulary has it, otherwise as kText
    kRegex,         // what the expression `text` matches
    kJsonSchema,    // a JSON text that the schema at the JSON pointer `text` of `schema` accepts
    kFree,   // any text without special tokens up to the first marker that one of the parts begins with, and then that part;
             // with `may_end` the text may also end there without one. Parts are sequences
    kAgain,  // the kFree that this is within, at its end
  };
  Kind kind = Kind::kSequence;
  std::string text = {};
  std::shared_ptr<const std::vector<Syntax>> shared = nullptr;  // parts(), where there are any: copies have the same
  int least = 0;
  int most = ProgramBuilder::kNoMost;
  bool may_end = false;
  std::shared_ptr<const Json> schema = nullptr;
  std::string field = {};  // what is wrong with this, or within it, begins with it; where parts have one, with the innermost

  std::span<const Syntax> parts() const;
};

inline std::span<const Syntax> Syntax::parts() const {
  return shared == nullptr ? std::span<const Syntax>() : std::span<const Syntax>(*shared);
}

inline Syntax MadeOf(Syntax::Kind kind, std::vector<Syntax> parts) {
  return {kind, "", std::make_shared<const std::vector<Syntax>>(std::move(parts))};
}
inline Syntax InOrder(std::vector<Syntax> parts) { return MadeOf(Syntax::Kind::kSequence, std::move(parts)); }
inline Syntax OneOf(std::vector<Syntax> parts) { return MadeOf(Syntax::Kind::kAlternatives, std::move(parts)); }
inline Syntax Literal(std::string_view text) { return {Syntax::Kind::kText, std::string(text)}; }
inline Syntax Marker(std::string_view name) { return {Syntax::Kind::kMarker, std::string(name)}; }
inline Syntax Regex(std::string_view pattern) { return {Syntax::Kind::kRegex, std::string(pattern)}; }
inline Syntax Repeat(Syntax part, int least, int most) {
  Syntax repeat = MadeOf(Syntax::Kind::kRepeat, {std::move(part)});
  repeat.least = least;
  repeat.most = most;
  return repeat;
}
inline Syntax Optional(Syntax part) { return Repeat(std::move(part), 0, 1); }
inline Syntax Free(std::vector<Syntax> parts, bool may_end) {
  Syntax free = MadeOf(Syntax::Kind::kFree, std::move(parts));
  free.may_end = may_end;
  return free;
}
// Any text up to the marker, which ends it.
inline Syntax UpTo(std::string_view marker) { return Free({InOrder({Marker(marker)})}, false); }
inline Syntax Again() { return {Syntax::Kind::kAgain}; }
inline Syntax SchemaAt(std::shared_ptr<const Json> schema, std::string_view pointer) {
  Syntax hole{Syntax::Kind::kJsonSchema, std::string(pointer)};
  hole.schema = std::move(schema);
  return hole;
}

// What a text must be, as a request says it.
struct TextFormat {
  enum class Kind : uint8_t { kJsonSchema, kRegex, kJsonObject };
  Kind kind = Kind::kJsonObject;
  std::string source;  // of kJsonSchema and kRegex
};
// INVALID_ARGUMENT for what is too long, or no JSON.
absl::StatusOr<Syntax> SyntaxOf(const TextFormat& format, std::string_view field = "");

// "FIELD: words", INVALID_ARGUMENT.
absl::Status FieldRefusal(std::string_view field, const absl::Status& status);

}  // namespace moed::grammar
