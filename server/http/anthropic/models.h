// The models that are served as Anthropic lists them.
#pragma once

#include <string>

#include "server/http/api/model_names.h"
#include "server/http/transport/exchange.h"

namespace moed::http {

// Anthropic's clients and OpenAI's ask for models at the same paths; the former say a version.
inline bool AsksAnthropic(const HttpRequest& request) { return !request.Value("anthropic-version").empty(); }

HttpReply ListAnthropicModels(const ModelNames& models);
HttpReply OneAnthropicModel(const ModelNames& models, const std::string& name);

}  // namespace moed::http
