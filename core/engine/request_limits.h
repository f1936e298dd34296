// What one request may hold: the one place of these numbers.
#pragma once

#include <cstddef>
#include <optional>

namespace moed {

// Held against a message where it arrives, before anything of it is copied, and against a request by the engine. The memory plan
// counts with them.
struct RequestLimits {
  int name_bytes = 128;  // of request_id, of session_id, of what a conversation names
  int logit_biases = 1024;
  int stop_strings = 16;
  int stop_string_bytes = 256;  // of each
  int stop_tokens = 64;
  int top_logprobs = 20;
  int scored_alternatives = 8192;         // of a text to score, tokens x top_logprobs
  size_t text_bytes = size_t{1} << 20;    // to be tokenised, or made of tokens
  size_t prompt_bytes = size_t{1} << 20;  // of a prompt's text; less than text_bytes: no longer one fits the context
  size_t word_bytes = size_t{64} << 10;   // of a stretch of text that the tokenizer merges as a whole
  int prompt_tokens = 1 << 20;            // that are given as tokens
  int messages = 2048;                    // of a conversation
  int content_parts = 4096;               // of all its messages
  int tool_calls = 2048;                  // likewise
  int tools = 256;
  size_t variables_bytes = 64 << 10;            // of further variables of its template
  size_t conversation_bytes = size_t{8} << 20;  // of its values, and of those that its template makes
  size_t tool_schema_bytes = 64 << 10;          // of names in its tools, which wait for the answer
  size_t held_answer_bytes = 16 << 10;          // of an answer that may become a call of a tool
  size_t format_bytes = size_t{64} << 10;       // of a JSON schema or a regular expression
  size_t unknown_bytes = 16 << 10;              // in fields that this version does not know

  // Tokens of the context, where no longer text than prompt_bytes fits it.
  std::optional<int> ContextOfText() const { return prompt_bytes < text_bytes ? std::optional(prompt_tokens) : std::nullopt; }
};

}  // namespace moed
