// /v1/chat/completions: from the daemon's messages to JSON.
#pragma once

#include <memory>

#include "server/http/api/relay.h"
#include "server/http/openai/chat_request.h"
#include "server/http/openai/reply.h"

namespace moed::http {

// draft.include_usage as for completions.
std::unique_ptr<AnswerWriter<moe::v1::ChatResponse>> MakeChatWriter(AnswerIdentity identity, const ChatDraft& draft);

}  // namespace moed::http
