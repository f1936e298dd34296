#include "server/http/openai/models.h"

#include <algorithm>

#include "core/base/status.h"
#include "server/http/openai/reply.h"

namespace moed::http {
namespace {

Json ModelJson(const std::string& name, const ServedModel& model) {
  Json json = {{"id", name}, {"object", "model"}, {"created", model.since_unix_seconds}, {"owned_by", "moed"}};
  if (model.max_context > 0) json["max_model_len"] = model.max_context;  // vLLM's name
  return json;
}

}  // namespace

absl::StatusOr<ModelNames::Served> ModelNames::Serving() const {
  const std::optional<ServedModel> model = daemon_.model();
  if (!model.has_value()) return absl::UnavailableError("the daemon does not serve: it is not reached, loads or drains");
  if (!names_.empty()) return Served{names_, *model};
  if (model->store.empty()) return absl::UnavailableError("the model has no name: moed-http needs --control or --model-name");
  return Served{{model->store}, *model};
}

std::optional<ApiError> ModelNames::Refusal(const std::string& name) const {
  const auto served = Serving();
  if (!served.ok()) return ErrorOf(served.status());
  if (name.empty()) return ErrorOf(InvalidArgument("model: missing"));
  if (std::ranges::find(served->names, name) != served->names.end()) return std::nullopt;
  const std::string known = JoinNames(served->names, [](const std::string& known_name) { return known_name; });
  return ApiError{.status = 404,
                  .message = StrCat("there is no model \"", name.substr(0, 128), "\"; served is: ", known),
                  .parameter = "model",
                  .code = "model_not_found"};
}

HttpReply ModelNames::List() const {
  const auto served = Serving();
  if (!served.ok()) return OpenAiError(ErrorOf(served.status()));
  Json data = Json::array();
  for (const std::string& name : served->names) data.push_back(ModelJson(name, served->model));
  return {.body = Dumped({{"object", "list"}, {"data", data}})};
}

HttpReply ModelNames::One(const std::string& name) const {
  if (const auto refusal = Refusal(name)) return OpenAiError(*refusal);
  const auto served = Serving();
  return served.ok() ? HttpReply{.body = Dumped(ModelJson(name, served->model))} : OpenAiError(ErrorOf(served.status()));
}

}  // namespace moed::http
