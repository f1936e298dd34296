#include <google/protobuf/util/json_util.h>

#include <cstdio>
#include <memory>
#include <string>

#include "client/command.h"
#include "core/base/status.h"

namespace moed {
namespace {

struct Flags {
  int most = 100;
  bool json = false;
  std::string name;
};

absl::Status List(const Flags& flags, CommandContext& context) {
  MOED_ASSIGN_OR_RETURN(const moe::v1::ListSessionsResponse answer, context.client.ListSessions(flags.most));
  if (flags.json) {
    google::protobuf::util::JsonPrintOptions options;
    options.always_print_primitive_fields = true;
    options.preserve_proto_field_names = true;
    std::string text;
    (void)google::protobuf::util::MessageToJsonString(answer, &text, options);
    std::printf("%s\n", text.c_str());
    return absl::OkStatus();
  }
  for (const auto& session : answer.sessions()) {
    if (session.busy()) {
      std::printf("%s  being answered\n", session.session_id().c_str());
    } else {
      std::printf("%s  %d tokens, %d of them in memory, %d on disk, idle for %.0f s\n", session.session_id().c_str(),
                  session.tokens(), session.cached_tokens(), session.tokens_on_disk(), session.idle_seconds());
    }
  }
  if (answer.total() > answer.sessions_size()) std::printf("and %d more\n", answer.total() - answer.sessions_size());
  return absl::OkStatus();
}

}  // namespace

CommandRun DefineSession(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  app.require_subcommand(1);
  app.fallthrough();
  CLI::App* list = app.add_subcommand("list", "Conversations, the most recently used first.");
  list->add_option("--most", flags->most, "how many to list")->check(CLI::Range(1, 1000))->capture_default_str();
  list->add_flag("--json", flags->json, "as one JSON object");
  CLI::App* remove = app.add_subcommand("delete", "Forgets a conversation.");
  remove->add_option("name", flags->name, "of the conversation")->required();
  return [flags, list](CommandContext& context) {
    return list->parsed() ? List(*flags, context) : context.client.DeleteSession(flags->name);
  };
}

}  // namespace moed
