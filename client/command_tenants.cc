#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "client/command.h"
#include "core/base/status.h"

namespace moed {
namespace {

void PrintJson(const moe::v1::Stats& stats) {
  moe::v1::Stats tenants;
  *tenants.mutable_tenants() = stats.tenants();
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  (void)google::protobuf::util::MessageToJsonString(tenants, &text, options);
  std::printf("%s\n", text.c_str());
}

std::string LimitsText(const moe::v1::TenantStats& tenant) {
  std::string text = StrCat("weight=", tenant.weight());
  if (tenant.has_max_running()) text += StrCat(" max-running=", tenant.max_running());
  if (tenant.has_max_waiting()) text += StrCat(" max-waiting=", tenant.max_waiting());
  if (tenant.has_tokens_per_minute()) text += StrCat(" tokens-per-minute=", tenant.tokens_per_minute());
  if (tenant.has_kv_percent()) text += StrCat(" kv-percent=", tenant.kv_percent());
  return text;
}

absl::Status List(bool json, CommandContext& context) {
  constexpr double kAnyWindow = 1;
  MOED_ASSIGN_OR_RETURN(const moe::v1::Stats stats, context.client.GetStats(kAnyWindow));
  if (json) {
    PrintJson(stats);
    return absl::OkStatus();
  }
  int width = 4;
  for (const auto& tenant : stats.tenants()) width = std::max(width, static_cast<int>(tenant.name().size()));
  std::printf("%-*s %8s %8s %8s %12s %12s  %s\n", width, "name", "running", "waiting", "refused", "prompt", "generated",
              "limits");
  for (const auto& tenant : stats.tenants()) {
    std::printf("%-*s %8d %8d %8llu %12llu %12llu  %s\n", width, tenant.name().c_str(), tenant.running(), tenant.waiting(),
                static_cast<unsigned long long>(tenant.refused()), static_cast<unsigned long long>(tenant.prompt_tokens()),
                static_cast<unsigned long long>(tenant.generated_tokens()), LimitsText(tenant).c_str());
  }
  return absl::OkStatus();
}

}  // namespace

CommandRun DefineTenants(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "as one JSON object");
  return [json](CommandContext& context) { return List(*json, context); };
}

}  // namespace moed
