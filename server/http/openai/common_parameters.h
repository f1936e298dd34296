// Parameters that /v1/completions and /v1/chat/completions share.
#pragma once

#include <span>

#include "server/http/api/answer.h"
#include "server/http/api/parameters.h"

namespace moed::http {

std::span<const Parameter<AnswerOptions>> CommonParameters();

}  // namespace moed::http
