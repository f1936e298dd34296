// What a request may ask for. Messages begin with the field as the client knows it: "sampling.top_p: 1.5 is not in (0, 1]".
#pragma once

#include "absl/status/status.h"
#include "core/engine/engine.h"

namespace moed {

inline constexpr int kMaxNameBytes = 128;
inline constexpr int kMaxLogitBiases = 1024;
inline constexpr int kMaxStopStrings = 16;
inline constexpr int kMaxStopStringBytes = 256;
inline constexpr int kMaxStopTokens = 64;
inline constexpr int kMaxTopLogprobs = 20;
// Of a text to score, tokens x top_logprobs: bounds what a request holds of them, which the memory budget counts.
inline constexpr int kMaxScoredAlternatives = 8192;

// INVALID_ARGUMENT that names field, value and what is allowed. A session's earlier tokens are not known here: CheckContext.
absl::Status CheckRequest(const EngineRequest& request, const EngineLimits& limits);

// INVALID_ARGUMENT when prompt and earlier tokens of its session do not fit the context. An answer needs room for one token.
absl::Status CheckContext(const EngineRequest& request, const EngineLimits& limits, int session_tokens);

}  // namespace moed
