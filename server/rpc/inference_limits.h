// What the messages of Inference may hold, field by field.
#pragma once

#include "core/engine/request_limits.h"
#include "server/wire/received_message.h"

namespace moed {

// Constant.
struct InferenceLimits {
  explicit InferenceLimits(const RequestLimits& limits);

  const MessageLimits generate, chat, score, tokenize, detokenize, delete_session;
};

}  // namespace moed
