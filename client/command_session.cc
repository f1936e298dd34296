#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "client/command.h"
#include "client/flag_values.h"
#include "client/json_text.h"
#include "client/shown.h"
#include "core/base/status.h"

namespace moed {
namespace {

struct SessionFlags {
  int most = 100;
  bool json = false;
  std::string name;
};

absl::Status ListSessions(const SessionFlags& flags, CommandContext& context) {
  MOED_ASSIGN_OR_RETURN(const moe::v1::ListSessionsResponse answer, context.client.ListSessions(flags.most));
  if (flags.json) {
    std::printf("%s\n", JsonText(answer).c_str());
    return absl::OkStatus();
  }
  for (const auto& session : answer.sessions()) {
    const std::string id = LineOn(stdout, session.session_id());
    if (session.busy()) {
      absl::PrintF("%s  being answered\n", id);
    } else {
      absl::PrintF("%s  %d tokens, %d of them in memory, %d on disk, idle for %.0f s\n", id, session.tokens(),
                   session.cached_tokens(), session.tokens_on_disk(), session.idle_seconds());
    }
  }
  if (answer.total() > answer.sessions_size()) std::printf("and %d more\n", answer.total() - answer.sessions_size());
  return absl::OkStatus();
}

}  // namespace

CommandRun DefineSession(CLI::App& app) {
  auto flags = std::make_shared<SessionFlags>();
  app.require_subcommand(1);
  app.fallthrough();
  CLI::App* list = app.add_subcommand("list", "Conversations, the most recently used first.");
  list->add_option("--most", flags->most, "how many to list")->transform(Between(1, 1000))->capture_default_str();
  list->add_flag("--json", flags->json, "as one JSON object");
  CLI::App* remove = app.add_subcommand("delete", "Forgets a conversation.");
  remove->add_option("name", flags->name, "of the conversation")->required();
  return [flags, list](CommandContext& context) {
    return list->parsed() ? ListSessions(*flags, context) : context.client.DeleteSession(flags->name);
  };
}

}  // namespace moed
