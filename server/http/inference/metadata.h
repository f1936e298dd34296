// What the protocol tells of server and model.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "inference/v2.pb.h"
#include "server/http/api/api_error.h"
#include "server/http/api/model_names.h"

namespace moed::http {

inference::ServerMetadataResponse ServerMetadata();
inference::ModelMetadataResponse ModelMetadata(std::string_view name);

// Nothing where the daemon serves a model of this name and version.
std::optional<ApiError> ModelRefusal(const ModelNames& models, const std::string& name, std::string_view version);

}  // namespace moed::http
