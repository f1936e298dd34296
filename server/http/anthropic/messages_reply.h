// /v1/messages: from the daemon's messages to JSON.
#pragma once

#include <memory>

#include "server/http/anthropic/messages_request.h"
#include "server/http/api/answer.h"
#include "server/http/api/relay.h"

namespace moed::http {

// Usage always comes with the first and the last event.
std::unique_ptr<AnswerWriter<moe::v1::ChatResponse>> MakeMessagesWriter(AnswerIdentity identity, const MessagesDraft& draft);

}  // namespace moed::http
