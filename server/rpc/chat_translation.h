// Conversations to the variables of chat templates, as Hugging Face's templates expect them.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "core/chat/marked_text.h"
#include "moe/v1/inference.pb.h"
#include "server/rpc/request_translation.h"
#include "server/rpc/server_state.h"

namespace moed {

// What a request lacks in sampling is the model's. FAILED_PRECONDITION where the model has no template, INVALID_ARGUMENT as
// TranslateGenerate.
absl::StatusOr<PendingRequest> TranslateChat(moe::v1::ChatRequest request, const LoadedModel& model, const RequestLimits& limits);

// What the template makes of it. INVALID_ARGUMENT with its words, or its line.
absl::StatusOr<chat::MarkedText> RenderConversation(const PendingRequest::Conversation& conversation, const LoadedModel& model,
                                                    const RequestLimits& limits, std::function<bool()> stopping);

}  // namespace moed
