// Protos to engine requests. Ranges of values are the engine's to check (Engine::Submit names the field); here stands what only a
// proto can get wrong.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "core/engine/engine.h"
#include "core/tokenizer/tokenizer.h"
#include "moe/v1/inference.pb.h"

namespace moed {

// A request before its text became tokens.
struct PendingRequest {
  EngineRequest engine;  // prompt: filled when it was given as tokens
  bool is_text = false;
  std::string text;
  std::optional<bool> add_special_tokens;  // absent: true, unless a session is continued
  bool parse_special_tokens = true;
  bool return_prompt_tokens = false;

  size_t prompt_bytes() const { return text.size() + engine.prompt.size() * sizeof(TokenId); }
  const char* prompt_field() const { return is_text ? "text" : "token_ids"; }
};

// INVALID_ARGUMENT with google.rpc.BadRequest naming every wrong field. The engine's name is request_id, to be made up when
// empty.
absl::StatusOr<PendingRequest> TranslateGenerate(const moe::v1::GenerateRequest& request);
absl::StatusOr<PendingRequest> TranslateScore(const moe::v1::ScoreRequest& request);

EncodeOptions TranslateTokenizeOptions(const moe::v1::TokenizeOptions& options);

}  // namespace moed
