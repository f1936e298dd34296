#include "server/rpc/inference_limits.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "moe/v1/inference.pb.h"

namespace moed {
namespace {

size_t Count(int limit) { return static_cast<size_t>(limit); }

// What the context takes, as text or tokens.
std::vector<FieldLimit> TextLimits(const RequestLimits& limits, const char* text, const char* ids, const char* ids_name) {
  const std::string remedy =
      limits.ContextOfText() ? "no longer text fits the context (--max-context)" : "the server's --max-text-bytes allows more";
  return {{.path = text, .bytes = limits.prompt_bytes, .remedy = remedy, .context = limits.ContextOfText()},
          {.path = ids,
           .entries = Count(limits.prompt_tokens),
           .remedy = "no more fit the context (--max-context)",
           .name = ids_name,
           .context = limits.prompt_tokens}};
}

// Generate and Score have the same prompt fields.
std::vector<FieldLimit> PromptLimits(const RequestLimits& limits) {
  std::vector<FieldLimit> fields = TextLimits(limits, "text", "token_ids.ids", "token_ids");
  fields.push_back({.path = "request_id", .bytes = Count(limits.name_bytes)});
  return fields;
}

std::vector<FieldLimit> ScoreLimits(const RequestLimits& limits) {
  std::vector<FieldLimit> fields = PromptLimits(limits);
  std::ranges::move(TextLimits(limits, "target_text", "target_token_ids.ids", "target_token_ids"), std::back_inserter(fields));
  return fields;
}

// Generate and Chat have the same fields for their answers.
void AddAnswerLimits(const RequestLimits& limits, std::vector<FieldLimit>& fields) {
  fields.push_back({.path = "sampling.logit_bias", .entries = Count(limits.logit_biases)});
  fields.push_back(
      {.path = "stopping.stop_strings", .entries = Count(limits.stop_strings), .bytes = Count(limits.stop_string_bytes)});
  fields.push_back({.path = "stopping.stop_token_ids", .entries = Count(limits.stop_tokens)});
  fields.push_back({.path = "format.json_schema", .bytes = limits.format_bytes});
  fields.push_back({.path = "format.regex", .bytes = limits.format_bytes});
}

std::vector<FieldLimit> GenerateLimits(const RequestLimits& limits) {
  std::vector<FieldLimit> fields = PromptLimits(limits);
  AddAnswerLimits(limits, fields);
  fields.push_back({.path = "session_id", .bytes = Count(limits.name_bytes)});
  return fields;
}

std::vector<FieldLimit> ChatLimits(const RequestLimits& limits) {
  const size_t name = Count(limits.name_bytes);
  std::vector<FieldLimit> fields = {
      {.path = "request_id", .bytes = name},
      {.path = "session_id", .bytes = name},
      {.path = "messages", .entries = Count(limits.messages)},
      {.path = "messages.role", .bytes = name},
      {.path = "messages.content", .entries = Count(limits.content_parts)},
      {.path = "messages.tool_calls", .entries = Count(limits.tool_calls)},
      {.path = "messages.tool_calls.id", .bytes = name},
      {.path = "messages.tool_calls.name", .bytes = name},
      {.path = "messages.tool_call_id", .bytes = name},
      {.path = "messages.name", .bytes = name},
      {.path = "tools", .entries = Count(limits.tools)},
      {.path = "tools.name", .bytes = name},
      {.path = "tool_choice.name", .bytes = name},
      {.path = "template_variables", .bytes = limits.variables_bytes},
  };
  for (const char* text : {"messages.content.text", "messages.reasoning", "messages.tool_calls.arguments", "tools.description",
                           "tools.parameters"}) {
    fields.push_back({.path = text,
                      .bytes = limits.text_bytes,
                      .remedy = "the server's --max-text-bytes allows more",
                      .context = limits.ContextOfText()});
  }
  AddAnswerLimits(limits, fields);
  return fields;
}

}  // namespace

InferenceLimits::InferenceLimits(const RequestLimits& limits)
    : generate(*moe::v1::GenerateRequest::descriptor(), GenerateLimits(limits), limits.unknown_bytes),
      chat(*moe::v1::ChatRequest::descriptor(), ChatLimits(limits), limits.unknown_bytes),
      score(*moe::v1::ScoreRequest::descriptor(), ScoreLimits(limits), limits.unknown_bytes),
      tokenize(*moe::v1::TokenizeRequest::descriptor(),
               {{.path = "text", .bytes = limits.text_bytes, .remedy = "the server's --max-text-bytes allows more"}},
               limits.unknown_bytes),
      detokenize(
          *moe::v1::DetokenizeRequest::descriptor(),
          {{.path = "token_ids", .entries = Count(limits.prompt_tokens), .remedy = "no sequence is longer (--max-context)"}},
          limits.unknown_bytes),
      delete_session(*moe::v1::DeleteSessionRequest::descriptor(), {{.path = "session_id", .bytes = Count(limits.name_bytes)}},
                     limits.unknown_bytes) {}

}  // namespace moed
