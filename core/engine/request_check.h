// What a request may ask for. Messages begin with the field as the client knows it: "sampling.top_p: 1.5 is not in [0, 1]".
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/engine/engine.h"

namespace moed {

// A name of a request or a session, which is shown to operators, on terminals and in logs: no control characters.
absl::Status CheckName(std::string_view field, const std::string& name, int least_bytes, int most_bytes);

// INVALID_ARGUMENT that names field, value and what is allowed. Of its session nothing is known here: CheckSession.
absl::Status CheckRequest(const EngineRequest& request, const EngineLimits& limits);

// Whether the request may have its session, which holds so many tokens; absent: it is not kept. An answer needs room for one
// token.
//   ABORTED, NOT_FOUND, FAILED_PRECONDITION  as Engine::Submit says
//   INVALID_ARGUMENT                         the prompt does not fit the context behind the session's tokens
absl::Status CheckSession(const EngineRequest& request, const EngineLimits& limits, std::optional<int> session_tokens);

}  // namespace moed
