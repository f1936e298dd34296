#include "server/http/anthropic/models.h"

#include "absl/time/time.h"
#include "server/http/anthropic/error.h"

namespace moed::http {
namespace {

Json AnthropicModelJson(const std::string& name, const ServedModel& model) {
  const std::string since =
      absl::FormatTime(absl::RFC3339_sec, absl::FromUnixSeconds(model.since_unix_seconds), absl::UTCTimeZone());
  return {{"type", "model"}, {"id", name}, {"display_name", name}, {"created_at", since}};
}

}  // namespace

HttpReply ListAnthropicModels(const ModelNames& models) {
  const auto served = models.Serving();
  if (!served.ok()) return AnthropicError(ErrorOf(served.status()));
  Json data = Json::array();
  for (const std::string& name : served->names) data.push_back(AnthropicModelJson(name, served->model));
  return {.body = Dumped(
              {{"data", data}, {"has_more", false}, {"first_id", served->names.front()}, {"last_id", served->names.back()}})};
}

HttpReply OneAnthropicModel(const ModelNames& models, const std::string& name) {
  if (const auto refusal = models.Refusal(name)) return AnthropicError(*refusal);
  const auto served = models.Serving();
  if (!served.ok()) return AnthropicError(ErrorOf(served.status()));
  return {.body = Dumped(AnthropicModelJson(name, served->model))};
}

}  // namespace moed::http
