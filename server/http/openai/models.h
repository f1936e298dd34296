// /v1/models.
#pragma once

#include <string>

#include "server/http/api/model_names.h"
#include "server/http/transport/exchange.h"

namespace moed::http {

HttpReply ListModels(const ModelNames& models);
HttpReply OneModel(const ModelNames& models, const std::string& name);

}  // namespace moed::http
