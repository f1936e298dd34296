#include "server/http/api/model_names.h"

#include <algorithm>

#include "core/base/status.h"

namespace moed::http {

absl::StatusOr<ModelNames::Served> ModelNames::Serving() const {
  MOED_ASSIGN_OR_RETURN(const ServedModel model, daemon_.model());
  if (!names_.empty()) return Served{names_, model};
  if (model.store.empty()) return absl::UnavailableError("the model has no name: moed-http needs --control or --model-name");
  return Served{{model.store}, model};
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

}  // namespace moed::http
