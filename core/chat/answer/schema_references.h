// What schemas refer to, for syntaxes that write strings without quotes.
#pragma once

#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "core/grammar/schema_text.h"

namespace moed::chat {

// Of one root, which outlives it. However many lead to a place, what is there is looked at once.
class SchemaReferences {
 public:
  explicit SchemaReferences(const grammar::Json& root) : root_(root) {}
  // What a schema is that says nothing but "$ref", or "allOf" of one schema; every other one is itself.
  const grammar::Json& Said(const grammar::Json& schema);
  // Whether a value may be a string; a schema that says nothing of it accepts one.
  bool TakesString(const grammar::Json& schema) { return TakesString(schema, 0); }

 private:
  bool TakesString(const grammar::Json& schema, int depth);
  bool ReferredTakesString(std::string_view reference, int depth);
  const grammar::Json* Target(std::string_view reference);

  const grammar::Json& root_;
  absl::flat_hash_map<std::string_view, const grammar::Json*> targets_;
  absl::flat_hash_map<const grammar::Json*, bool> takes_string_;  // of targets; true while it is found out
};

}  // namespace moed::chat
