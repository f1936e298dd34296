// The chat template of a model, with what it is told of the model's tokenizer.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/chat/template.h"
#include "core/chat/value.h"

namespace moed::chat {

// The keys of an assistant's reasoning in a message: each template reads one of them.
inline constexpr std::string_view kReasoningKeys[] = {"reasoning_content", "reasoning", "thinking"};

// How a template wants the calls of an assistant's message; found out by trying.
struct CallForm {
  bool arguments_are_text = false;    // of JSON, shown as they stand; else a dict
  bool content_is_none = false;       // where the message has calls alone; else ""
  bool text_joins_reasoning = false;  // beside calls, where the template refuses to have both
};

// Where a template has a place for what the system and developers say; found out by trying.
struct SystemForm {
  bool knows_developers = false;  // the role; else such a message is the system's
  bool leads_alone = false;       // one such message has a place at the conversation's beginning
  bool later_is_user = false;     // such a message has no place after others, unless a user says it
  bool users_alternate = false;   // two messages of users have no place beside each other
};

// Immutable, thread-safe.
class ModelTemplate {
 public:
  // `named_tokens`: a JSON object of texts, {"bos_token": "<s>"}, or "". INVALID_ARGUMENT as Template::Parse.
  static absl::StatusOr<ModelTemplate> Parse(std::string_view source, std::string_view named_tokens);

  const CallForm& call_form() const { return call_form_; }
  const SystemForm& system_form() const { return system_form_; }

  // `conversation`: what the template may name beside the tokens, which it may name anew. Errors as Template::Render.
  absl::StatusOr<MarkedText> Render(const std::vector<Dict::Entry>& conversation, const RenderOptions& options) const;

 private:
  absl::StatusOr<std::string> Try(std::vector<Value> messages, Value tools = Value()) const;
  // Of a conversation in which an assistant says this, calls a tool and gets its result.
  absl::StatusOr<std::string> TryCall(const CallForm& form, std::string_view reasoning, std::string_view text) const;
  // Whether a call in this form is shown with its arguments.
  bool Shows(const CallForm& form) const;
  // Whether such a message cannot have both, and shows the text where the reasoning has it.
  bool TextJoinsReasoning(const CallForm& form) const;
  // Whether all is shown that these say in turn.
  bool ShowsAll(std::initializer_list<const char*> roles) const;
  SystemForm TrySystem(bool speaks_of_developers) const;

  ModelTemplate(Template parsed, Value named_tokens) : template_(std::move(parsed)), named_tokens_(std::move(named_tokens)) {}

  Template template_;
  Value named_tokens_;  // a dict
  CallForm call_form_;
  SystemForm system_form_;
};

}  // namespace moed::chat
