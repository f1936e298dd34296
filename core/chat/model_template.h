// The chat template of a model, with what it is told of the model's tokenizer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/chat/template.h"
#include "core/chat/value.h"

namespace moed::chat {

// How a template wants the calls of an assistant's message; found out by trying.
struct CallForm {
  bool arguments_are_text = false;  // of JSON, shown as they stand; else a dict
  bool content_is_none = false;     // where the message has calls alone; else ""
};

// Immutable, thread-safe.
class ModelTemplate {
 public:
  // `named_tokens`: a JSON object of texts, {"bos_token": "<s>"}, or "". INVALID_ARGUMENT as Template::Parse.
  static absl::StatusOr<ModelTemplate> Parse(std::string_view source, std::string_view named_tokens);

  const CallForm& call_form() const { return call_form_; }
  bool knows_developer() const { return knows_developer_; }  // the role

  // `conversation`: what the template may name beside the tokens, which it may name anew. Errors as Template::Render.
  absl::StatusOr<MarkedText> Render(const std::vector<Dict::Entry>& conversation, const RenderOptions& options) const;

 private:
  // Whether a call in this form is shown with its arguments.
  bool Shows(const CallForm& form) const;

  ModelTemplate(Template parsed, Value named_tokens) : template_(std::move(parsed)), named_tokens_(std::move(named_tokens)) {}

  Template template_;
  Value named_tokens_;  // a dict
  CallForm call_form_;
  bool knows_developer_ = false;
};

}  // namespace moed::chat
