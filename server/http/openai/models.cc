#include "server/http/openai/models.h"

#include "server/http/openai/reply.h"

namespace moed::http {
namespace {

Json ModelJson(const std::string& name, const ServedModel& model) {
  Json json = {{"id", name}, {"object", "model"}, {"created", model.since_unix_seconds}, {"owned_by", "moed"}};
  if (model.max_context > 0) json["max_model_len"] = model.max_context;  // vLLM's name
  return json;
}

}  // namespace

HttpReply ListModels(const ModelNames& models) {
  const auto served = models.Serving();
  if (!served.ok()) return OpenAiError(ErrorOf(served.status()));
  Json data = Json::array();
  for (const std::string& name : served->names) data.push_back(ModelJson(name, served->model));
  return {.body = Dumped({{"object", "list"}, {"data", data}})};
}

HttpReply OneModel(const ModelNames& models, const std::string& name) {
  if (const auto refusal = models.Refusal(name)) return OpenAiError(*refusal);
  const auto served = models.Serving();
  return served.ok() ? HttpReply{.body = Dumped(ModelJson(name, served->model))} : OpenAiError(ErrorOf(served.status()));
}

}  // namespace moed::http
