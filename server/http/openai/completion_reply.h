// /v1/completions: from the daemon's messages to JSON.
#pragma once

#include <memory>

#include "server/http/api/relay.h"
#include "server/http/openai/completion_request.h"
#include "server/http/openai/reply.h"

namespace moed::http {

// draft.include_usage: in an event of its own, before the last; the others then have the member with null.
std::unique_ptr<AnswerWriter<moe::v1::GenerateResponse>> MakeCompletionWriter(AnswerIdentity identity,
                                                                              const CompletionDraft& draft);

}  // namespace moed::http
