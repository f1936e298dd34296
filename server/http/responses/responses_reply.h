// /v1/responses: from the daemon's messages to JSON.
#pragma once

#include <memory>

#include "server/http/api/relay.h"
#include "server/http/responses/responses_request.h"

namespace moed::http {

// Takes the draft's echo and input.
std::unique_ptr<AnswerWriter<moe::v1::ChatResponse>> MakeResponsesWriter(AnswerIdentity identity, ResponsesDraft& draft);

}  // namespace moed::http
