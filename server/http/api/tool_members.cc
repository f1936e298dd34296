#include "server/http/api/tool_members.h"

#include "core/base/status.h"

namespace moed::http {

using moe::v1::Tool;

absl::Status ApplyToolSchema(const Json& value, Tool& tool) {
  if (!value.is_object()) return InvalidArgument(ShownJson(value), " is no JSON schema, which is an object");
  tool.set_parameters(value.dump());
  return absl::OkStatus();
}

absl::Status ApplyToolCallers(const Json& value, Tool&) {
  return OnlyValue(value, Json::array({"direct"}), "only the model itself calls tools");
}

absl::Status ApplyToolDeferLoading(const Json& value, Tool&) { return OnlyValue(value, false, "all tools are shown at once"); }

}  // namespace moed::http
