#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/command.h"
#include "client/json_text.h"
#include "client/shown.h"
#include "core/base/status.h"

namespace moed {
namespace {

void PrintTenantsJson(const moe::v1::Stats& stats) {
  const std::string tenants =
      absl::StrJoin(stats.tenants(), ",", [](std::string* out, const moe::v1::TenantStats& tenant) { *out += JsonText(tenant); });
  std::printf("{\"tenants\":[%s]}\n", tenants.c_str());
}

std::string LimitsText(const moe::v1::TenantStats& tenant) {
  std::string text = StrCat("weight=", tenant.weight());
  if (tenant.has_max_running()) text += StrCat(" max-running=", tenant.max_running());
  if (tenant.has_max_waiting()) text += StrCat(" max-waiting=", tenant.max_waiting());
  if (tenant.has_tokens_per_minute()) text += StrCat(" tokens-per-minute=", tenant.tokens_per_minute());
  if (tenant.has_kv_percent()) text += StrCat(" kv-percent=", tenant.kv_percent());
  return text;
}

absl::Status ListTenants(bool json, CommandContext& context) {
  constexpr double kAnyWindow = 1;
  MOED_ASSIGN_OR_RETURN(const moe::v1::Stats stats, context.client.GetStats(kAnyWindow));
  if (json) {
    PrintTenantsJson(stats);
    return absl::OkStatus();
  }
  int width = 4;
  for (const auto& tenant : stats.tenants()) width = std::max(width, static_cast<int>(LineOn(stdout, tenant.name()).size()));
  std::printf("%-*s %8s %8s %8s %12s %12s  %s\n", width, "name", "running", "waiting", "refused", "prompt", "generated",
              "limits");
  for (const auto& tenant : stats.tenants()) {
    absl::PrintF("%-*s %8d %8d %8d %12d %12d  %s\n", width, LineOn(stdout, tenant.name()), tenant.running(), tenant.waiting(),
                 tenant.refused(), tenant.prompt_tokens(), tenant.generated_tokens(), LimitsText(tenant));
  }
  return absl::OkStatus();
}

}  // namespace

CommandRun DefineTenants(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "as one JSON object");
  return [json](CommandContext& context) { return ListTenants(*json, context); };
}

}  // namespace moed
