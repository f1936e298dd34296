// Chat templates: Jinja, as Hugging Face's checkpoints use it, makes a prompt of a conversation.
//
// The same text as Python's jinja2 in the ImmutableSandboxedEnvironment that transformers sets up: trim_blocks, lstrip_blocks,
// loop controls, generation blocks, tojson, raise_exception and strftime_now. What Jinja has and this engine has not is refused
// by Parse.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/chat/limits.h"
#include "core/chat/marked_text.h"
#include "core/chat/value.h"

namespace moed::chat {

struct Syntax;

struct RenderOptions {
  Limits limits;
  std::tm now = {};                // what strftime_now shows
  std::function<bool()> stopping;  // asked now and then: true ends the rendering with CANCELLED; empty: nobody does
};

// Immutable, thread-safe.
class Template {
 public:
  // INVALID_ARGUMENT "line 12: ..." naming the construct: a text that is no template, or one that uses what this engine does not
  // know.
  static absl::StatusOr<Template> Parse(std::string_view source);
  Template(Template&&);
  Template& operator=(Template&&);
  ~Template();

  // `variables`: a dict of what the template may name: messages, tools, add_generation_prompt, bos_token and the like.
  // INVALID_ARGUMENT with the words that Jinja has; what the template raises itself IsRaised (core/chat/error.h), with its words
  // alone. RESOURCE_EXHAUSTED where a limit is reached.
  absl::StatusOr<MarkedText> Render(const Value& variables, const RenderOptions& options = {}) const;

  // Filters and tests that nobody knows, which fail only where they are reached: "line 12: No filter named 'x'".
  std::vector<std::string> UnknownNames() const;

 private:
  explicit Template(std::unique_ptr<const Syntax> syntax);
  std::unique_ptr<const Syntax> syntax_;
};

}  // namespace moed::chat
