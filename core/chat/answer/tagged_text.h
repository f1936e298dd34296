// Values that stand between tags and may be strings: as texts without quotes.
#pragma once

#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "core/chat/answer/schema_references.h"
#include "core/chat/answer/tagged_call.h"
#include "core/grammar/syntax.h"

namespace moed::chat {

// "at PLACE: WHAT cannot be held to ...", INVALID_ARGUMENT.
absl::Status RefusedBetweenTags(std::string_view place, std::string_view what);
// The value, and the tag that ends it.
grammar::Syntax ClosedValue(const TagSyntax& tags, grammar::Syntax value);

// Any text that the reader takes for a whole value, and the tag that ends it.
grammar::Syntax AnyText(const TagSyntax& tags);

// Of the parameters of one tool, whose schema outlives it, as the tags do.
class TaggedText {
 public:
  struct Value {
    grammar::Syntax text;  // with the tag that ends it
    bool or_null = false;  // which is JSON
  };
  TaggedText(const grammar::Json& root, const TagSyntax& tags) : references_(root), tags_(tags) {}
  // Whether a parameter may be a string. All others are JSON.
  bool IsText(const grammar::Json& schema) { return references_.TakesString(schema); }
  // What a parameter may be that may be a string. INVALID_ARGUMENT naming the pointer for what texts cannot be held to.
  absl::StatusOr<Value> Of(const grammar::Json& schema, const std::string& pointer);

 private:
  absl::StatusOr<Value> Made(const grammar::Json& said, const std::string& pointer);
  absl::StatusOr<grammar::Syntax> Listed(const grammar::Json& said, const std::string& pointer) const;
  // The schemas of an "anyOf" or "oneOf" that says nothing but lists of values and null; otherwise null.
  const grammar::Json* Lists(const grammar::Json& said);
  absl::StatusOr<Value> OfLists(const grammar::Json& lists, const std::string& pointer);

  SchemaReferences references_;
  const TagSyntax& tags_;
  absl::flat_hash_map<const grammar::Json*, Value> known_;  // by what a schema says
};

}  // namespace moed::chat
