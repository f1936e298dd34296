// Protos to engine requests. Ranges of values are the engine's to check (Engine::Submit names the field); here stands what only a
// proto can get wrong.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/chat/answer/answer_rules.h"
#include "core/chat/value.h"
#include "core/engine/engine.h"
#include "core/grammar/syntax.h"
#include "core/tokenizer/tokenizer.h"
#include "moe/v1/inference.pb.h"
#include "server/wire/error_details.h"

namespace moed {

// A request before its text became tokens.
struct PendingRequest {
  // What a chat template makes the text of.
  struct Conversation {
    std::vector<chat::Dict::Entry> variables;
    chat::Value tools;                 // of them
    bool skip_special_tokens = false;  // that are no markers, once the engine has shown them
    size_t room = 0;                   // bytes for the values that the template makes
    // Of how many tokens, where its texts alone are longer than what any context holds.
    std::optional<int> beyond_context;
  };

  EngineRequest engine;  // prompt: filled when it was given as tokens
  bool is_text = false;
  std::string text;
  std::optional<std::string> target_text;  // what engine.target is to be made of
  std::vector<ByteRange> foreign;          // of text: no special tokens are in them
  std::optional<Conversation> conversation;
  std::optional<grammar::Syntax> format;   // what the answer must be; of a conversation, its text
  std::optional<chat::AnswerRules> rules;  // of a conversation whose answer is held to a form
  std::optional<bool> add_special_tokens;  // absent: true, unless a session is continued
  bool parse_special_tokens = true;
  bool return_prompt_tokens = false;

  const char* prompt_field() const { return conversation ? "messages" : is_text ? "text" : "token_ids"; }
};

// INVALID_ARGUMENT with google.rpc.BadRequest naming every wrong field. The engine's name is request_id, to be made up when
// empty.
absl::StatusOr<PendingRequest> TranslateGenerate(moe::v1::GenerateRequest request);
absl::StatusOr<PendingRequest> TranslateScore(moe::v1::ScoreRequest request);

// What Generate and Chat have in common.
struct AnswerFields {
  const moe::v1::Sampling& sampling;
  const moe::v1::Stopping& stopping;
  const moe::v1::ResponseOptions& response;
  const moe::v1::Fidelity& fidelity;
  const moe::v1::OutputFormat& format;
};
void TranslateAnswer(const AnswerFields& in, PendingRequest& out, FieldErrors& errors);
Priority TranslatePriority(moe::v1::Priority in, FieldErrors& errors);

EncodeOptions TranslateTokenizeOptions(const moe::v1::TokenizeOptions& options);

}  // namespace moed
