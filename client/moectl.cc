// moectl: the command line client of moed.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "client/command.h"
#include "client/command_line.h"
#include "client/flag_values.h"
#include "client/shown.h"
#include "core/base/standard_output.h"
#include "core/base/status.h"
#include "core/base/version.h"
#include "server/wire/openssl_exit.h"

namespace moed {
namespace {

struct Command {
  const char* name;
  const char* help;
  CommandRun (*define)(CLI::App& app);
};

constexpr Command kCommands[] = {
    {"generate", "Continue a text; streams the answer. Ctrl-C cancels it.", DefineGenerate},
    {"chat", "A conversation with a model that has a chat template; without a terminal each line is a message.", DefineChat},
    {"score", "Perplexity of a text.", DefineScore},
    {"tokenize", "Token ids of a text.", DefineTokenize},
    {"info", "What the server is and what it serves.", DefineInfo},
    {"stats", "Hit ratio, read bandwidth, TPOT and the cache, layer by layer; refreshes on a terminal.", DefineStats},
    {"session", "The conversations that the server keeps: list, or delete one.", DefineSession},
    {"abort", "Ends a request that waits or is being computed.", DefineAbort},
    {"tenants", "Names of tokens: what they may have, and what they have.", DefineTenants},
    {"resize", "Another memory budget, while it serves: the expert cache shrinks or grows.", DefineResize},
    {"pin", "Keeps experts in memory until they are unpinned, or the model goes.", DefinePin},
    {"unpin", "Lets pinned experts leave again.", DefineUnpin},
    {"prefetch", "Reads experts into memory while no request waits.", DefinePrefetch},
    {"residency",
     "The server's list of experts in memory (its --residency): save it now, with what it learned, or restore from it.",
     DefineResidency},
    {"log-level", "What the server logs from now on.", DefineLogLevel},
    {"drain", "Health says no from now on; new requests are refused after the server's --drain-delay-seconds.", DefineDrain},
    {"undrain", "Takes a drain back: health says yes, and requests are taken again.", DefineUndrain},
    {"load", "Has the server load a model, and tells how far it is.", DefineLoad},
    {"unload", "Takes the model out of the server, which stays without one.", DefineUnload},
    {"health", "Ends with 0 when the server is serving.", DefineHealth},
    {"bench", "Load: TTFT, TPOT and tokens/s under concurrency or an arrival rate. Ends with 7 where some requests failed.",
     DefineBench},
};

struct LocalCommand {
  const char* name;
  const char* help;
  LocalCommandRun (*define)(CLI::App& app);
};

// They print an error's words alone.
constexpr LocalCommand kLocalCommands[] = {
    {"token", "Tokens for the server's --tokens: new; needs no server.", DefineToken},
    {"render", "The prompt that a chat template makes of a conversation; needs no server.", DefineRender},
};

// Never of the command line, which every user of the machine sees.
absl::StatusOr<std::string> FindToken(const std::string& file) {
  if (file.empty()) {
    const char* token = std::getenv("MOECTL_TOKEN");
    return std::string(token == nullptr ? "" : token);
  }
  MOED_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file));
  const absl::string_view token = absl::StripAsciiWhitespace(text);
  if (token.empty()) return InvalidArgument("'", file, "' is empty");
  return std::string(token);
}

int End(const absl::Status& status) {
  if (!status.ok()) std::fprintf(stderr, "moectl: %s\n", ErrorText(status).c_str());
  return ExitCodeFor(status);
}

int RunLocally(const LocalCommandRun& run) {
  const absl::Status status = run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", TextOn(stderr, std::string(status.message())).c_str());
  return ExitCodeFor(status);
}

int Main(int argc, char** argv) {
  CLI::App app(
      "moectl talks to a moed server.\n\n"
      "  moectl generate --prompt \"Once upon a time\" --max-new-tokens 64\n"
      "  moectl score --file book.txt --window 256 --json\n"
      "  moectl score --source \"a question\" --text \"an answer\"\n"
      "  moectl bench --concurrency 4 --requests 64 --max-new-tokens 64",
      "moectl");
  app.footer(
      "Exit codes: 0 done, 1 failed, 2 bad usage or unreadable file, 3 no server or not serving, 4 request refused as invalid or "
      "too large,\n"
      "            5 queue full or session busy, 6 deadline, 7 some requests of bench failed, 130 cancelled.");
  app.set_version_flag("--version", std::string("moectl ") + BuildVersion());
  app.formatter(MakeHelpFormatter());
  app.require_subcommand(1);
  app.failure_message(CommandLineFailure);
  app.fallthrough();
  GlobalOptions global;
  app.add_option("--server,-s", global.server, "host:port, [ipv6]:port or unix:PATH")
      ->envname("MOECTL_SERVER")
      ->capture_default_str();
  app.add_option("--connect-timeout", global.connect_timeout_seconds, "seconds to wait for the server")
      ->transform(Between(0.05, 3600.0))
      ->capture_default_str();
  app.add_option("--deadline", global.deadline_seconds, "seconds after which a call fails")->transform(Positive());
  const auto add_file = [&app](const char* flag, std::string& value, const char* variable, const char* help) {
    app.add_option(flag, value, help)->envname(variable)->type_name("FILE");
  };
  add_file("--tls-ca", global.tls.ca, "MOECTL_TLS_CA",
           "TLS: authorities of the server's certificate, PEM, or \"system\" for this machine's");
  add_file("--tls-cert", global.tls.certificate, "MOECTL_TLS_CERT", "this client's certificate, PEM, where the server wants one");
  add_file("--tls-key", global.tls.key, "MOECTL_TLS_KEY", "its key, PEM");
  add_file("--token-file", global.token_file, "MOECTL_TOKEN_FILE",
           "the token that is presented, where the server wants one; MOECTL_TOKEN may hold the token itself");
  app.add_flag("--insecure", global.insecure, "show the token in plain text to other machines, too");
  app.add_option("--tls-name", global.tls.server_name, "name in the server's certificate, where --server is not that")
      ->envname("MOECTL_TLS_NAME");

  std::vector<std::pair<CLI::App*, CommandRun>> commands;
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.help);
    commands.emplace_back(sub, command.define(*sub));
  }
  std::vector<std::pair<CLI::App*, LocalCommandRun>> local_commands;
  for (const LocalCommand& command : kLocalCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.help);
    local_commands.emplace_back(sub, command.define(*sub));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return kExitUsage;
  }

  for (const auto& [sub, run] : local_commands) {
    if (sub->parsed()) return RunLocally(run);
  }
  const auto command = std::ranges::find_if(commands, [](const auto& row) { return row.first->parsed(); });
  if (command == commands.end()) return kExitUsage;
  if (const absl::Status status = command->second.prepare(); !status.ok()) return End(status);

  static Cancellation cancellation;
  static Interrupts interrupts(cancellation);

  ClientOptions options;
  options.connect_timeout_seconds = global.connect_timeout_seconds;
  options.tls = global.tls;
  options.insecure = global.insecure;
  auto token = FindToken(global.token_file);
  if (!token.ok()) {
    std::fprintf(stderr, "moectl: --token-file: %s\n", std::string(token.status().message()).c_str());
    return kExitUsage;
  }
  options.token = *std::move(token);
  if (global.deadline_seconds > 0) options.call_timeout_seconds = global.deadline_seconds;
  auto client = Client::Connect(global.server, options);
  if (!client.ok()) {
    std::fprintf(stderr, "moectl: %s\n", std::string(client.status().message()).c_str());
    return client.status().code() == absl::StatusCode::kInvalidArgument ? kExitUsage : kExitNoServer;
  }
  CommandContext context{**client, cancellation, interrupts, global};
  absl::Status status = command->second.run(context);
  if (cancellation.cancelled() && !status.ok()) status = absl::CancelledError("cancelled");
  return End(status);
}

}  // namespace
}  // namespace moed

int main(int argc, char** argv) {
  // Its lines about handshakes would stand beside the error that tells of them.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  moed::ExitWithoutOpenSsl();
  return moed::EndOfOutput("moectl", moed::Main(argc, argv));
}
