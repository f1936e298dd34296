#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/command.h"
#include "client/flag_values.h"
#include "core/base/status.h"
#include "server/wire/token_line.h"

namespace moed {
namespace {

struct TokenFlags {
  std::string name;
  std::string scopes;
  std::vector<std::pair<const LimitRow*, std::optional<int>>> limits;
};

absl::Status PrintNew(const TokenFlags& flags) {
  TokenLine line{.name = flags.name};
  MOED_RETURN_IF_ERROR(AsUsage(CheckTokenName(flags.name)));
  MOED_ASSIGN_OR_RETURN(line.scopes, AsUsage(ScopeSet::Parse(flags.scopes)));
  for (const auto& [row, value] : flags.limits) {
    if (value) row->set(line.limits, *value);
  }
  MOED_ASSIGN_OR_RETURN(const std::string token, DrawToken());
  line.hash = HashOfToken(token);
  std::printf("%s\n%s\n", token.c_str(), line.Text().c_str());
  std::fprintf(
      stderr,
      "The first line is the token: for %s alone, it is kept nowhere. The second goes into the server's file of --tokens.\n",
      flags.name.c_str());
  return absl::OkStatus();
}

}  // namespace

LocalCommandRun DefineToken(CLI::App& app) {
  auto flags = std::make_shared<TokenFlags>();
  app.require_subcommand(1);
  CLI::App* draw = app.add_subcommand("new", "Draws a token; prints it, and its line for the server.");
  draw->add_option("name", flags->name, "of who gets it, for logs")->required();
  std::string help = "with commas between them:";
  for (const ScopeRow& scope : Scopes())
    help += StrCat(&scope == &Scopes().front() ? " " : "; ", scope.name, " (", scope.help, ")");
  draw->add_option("scopes", flags->scopes, help)->required();
  for (const LimitRow& row : TokenLimits()) flags->limits.emplace_back(&row, std::nullopt);
  for (auto& [row, value] : flags->limits) {
    draw->add_option(StrCat("--", row->name), value, std::string(row->help))->transform(Between(row->least, row->most));
  }
  return [flags] { return PrintNew(*flags); };
}

}  // namespace moed
