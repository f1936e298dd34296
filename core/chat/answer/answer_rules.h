// What an answer must be, whatever the form in which its model writes it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/grammar/syntax.h"

namespace moed::chat {

struct CallableTool {
  std::string field;  // of the request, for errors
  std::string name;
  std::shared_ptr<const grammar::Json> schema;  // that its arguments follow; null: any object
  bool strict = false;                          // they have to: a schema that cannot be held is an error
};

struct AnswerRules {
  static constexpr int kNoMost = grammar::ProgramBuilder::kNoMost;

  bool reasoning_open = false;  // the prompt's end has opened the reasoning (OpensReasoning in answer_format.h)
  std::string prompt_end;       // its last bytes, without white space; where they close a reasoning, the answer has none
  std::vector<CallableTool> tools;
  bool must_call = false;  // there is no text, and one call at least
  int most_calls = kNoMost;
  std::optional<grammar::Syntax> text;  // of an answer without calls; absent: any, which calls may follow

  // Any arguments to tools that are not strict. Whether that changes anything.
  bool Loosen() {
    bool changed = false;
    for (CallableTool& tool : tools) {
      if (!tool.strict) changed |= std::exchange(tool.schema, nullptr) != nullptr;
    }
    return changed;
  }
};

}  // namespace moed::chat
