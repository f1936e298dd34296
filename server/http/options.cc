#include "server/http/options.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "CLI/CLI.hpp"
#include "core/base/byte_size.h"
#include "core/base/status.h"
#include "core/base/version.h"
#include "server/http/parameter_list.h"
#include "server/wire/exposure.h"
#include "server/wire/stray_variables.h"

namespace moed::http {
namespace {

constexpr const char* kDescription =
    "moed-http answers OpenAI's and Anthropic's HTTP APIs and the Open Inference Protocol with the model that a moed serves over "
    "gRPC.";
constexpr const char* kFooter =
    "Every option may also stand in the environment (MOED_HTTP_TOKENS=/etc/moed/tokens).\n"
    "\n"
    "Signals: SIGTERM and SIGINT drain (answers go on for --drain-seconds); a second one ends at once. SIGHUP reads "
    "certificates\n"
    "and tokens anew.";

// "--max-body" is MOED_HTTP_MAX_BODY.
std::string VariableName(const std::string& flag) {
  std::string name = "MOED_HTTP_" + flag.substr(2);
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::vector<std::pair<std::string_view, Address>> ServedAddresses(const Options& options) {
  std::vector<std::pair<std::string_view, Address>> served = {{"--listen", options.http.listen}};
  if (options.inference_listen) served.emplace_back("--listen-inference", *options.inference_listen);
  return served;
}

// Values of flags as they were written, until all are there.
struct Texts {
  std::string listen, inference_listen, allow_origin, max_body, max_bodies, page = "on", sandbox = "on", insecure = "off";
};

void Define(CLI::App& app, Options& options, Texts& texts) {
  const auto add = [&app](const std::string& flag, auto& value, const std::string& type, const std::string& help) {
    return app.add_option(flag, value, help)->envname(VariableName(flag))->type_name(type);
  };
  TransportLimits& limits = options.http.limits;
  add("--server", options.server, "HOST:PORT", "the daemon [127.0.0.1:50051]");
  add("--control", options.control, "HOST:PORT", "the daemon's --control-listen, where it has one [as --server]");
  add("--server-tls-ca", options.server_tls.ca, "FILE",
      "TLS to the daemon: the authorities of its certificate, PEM, or \"system\" for this machine's [plain text]");
  add("--server-tls-cert", options.server_tls.certificate, "FILE", "this program's certificate towards the daemon, PEM");
  add("--server-tls-key", options.server_tls.key, "FILE", "its key, PEM");
  add("--server-tls-name", options.server_tls.server_name, "NAME", "name in the daemon's certificate [the address's]");
  add("--server-token-file", options.server_token_file, "FILE",
      "a token of the scope \"observe\" by which this program asks the daemon for its model's name");
  add("--listen", texts.listen, "HOST:PORT", "HTTP; port 0 takes any free one [127.0.0.1:8080]");
  add("--listen-inference", texts.inference_listen, "HOST:PORT",
      "the Open Inference Protocol over gRPC, as 127.0.0.1:8001 [not over gRPC; over HTTP always]");
  add("--model-name", options.model_names, "NAME", "what requests call the model; may be repeated [the store's name]");
  TlsFiles& tls = options.access.tls;
  add("--tls-cert", tls.certificate, "FILE", "TLS: the certificate and those between it and a root, PEM [plain text]");
  add("--tls-key", tls.key, "FILE", "its key, PEM without a password");
  add("--tls-client-ca", tls.client_ca, "FILE", "clients must have a certificate of one of these authorities, PEM");
  add("--tokens", options.access.tokens, "FILE",
      "who may ask: lines of NAME SCOPES SHA256-HEX, as moectl token new makes them [everybody may]");
  app.add_flag(
         "--insecure", texts.insecure,
         "listen on addresses that other machines reach without TLS, or without tokens or --tls-client-ca; speak plain text to a "
         "daemon on another machine")
      ->envname("MOED_HTTP_INSECURE");
  add("--sandbox", texts.sandbox, "on|off|require",
      "gives up files and system calls that it does not need (Landlock, seccomp): those that this kernel knows, none, or none "
      "less "
      "than both [on]");
  add("--page", texts.page, "on|off", "the page at /, for talking to the model [on]")->check(CLI::IsMember({"on", "off"}));
  add("--allow-origin", texts.allow_origin, "ORIGIN,...",
      "whose pages may ask from a browser (CORS): SCHEME://HOST[:PORT] each, or * for all [nobody's but the page at /]");
  add("--max-connections", limits.connections, "N", "connections at once [256]")->check(CLI::Range(1, 65536));
  add("--max-body", texts.max_body, "BYTES", "of one request's body [4MiB]");
  add("--max-bodies", texts.max_bodies, "BYTES",
      "of all requests that are read or answered, and of answers that are not taken [64MiB]");
  add("--idle-seconds", limits.idle_seconds, "N", "for which a connection waits for its next request [75]")
      ->check(CLI::Range(1, 3600));
  add("--read-seconds", limits.read_seconds, "N", "in which a request's head has to come, and again its body [30]")
      ->check(CLI::Range(1, 3600));
  add("--write-seconds", limits.write_seconds, "N", "for which a client may take nothing of what waits for it [30]")
      ->check(CLI::Range(1, 3600));
  add("--ping-seconds", limits.ping_seconds, "N", "without an event after which a stream says that it goes on [10]")
      ->check(CLI::Range(1, 3600));
  add("--drain-delay-seconds", options.http.drain_delay_seconds, "N",
      "for which new requests are still taken after SIGTERM while /readyz says no, for load balancers to notice [2]")
      ->check(CLI::Range(0, 3600));
  add("--drain-seconds", options.http.drain_seconds, "N", "for which answers may go on once new requests are refused [30]")
      ->check(CLI::Range(0, 86400));
  add("--log-level", options.log_level, "NAME", "debug, info, warning, error or off [info]")
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}));
}

// Of what is said to callers, and to the daemon.
absl::Status CheckProtection(const Options& options) {
  for (const auto& [flag, address] : ServedAddresses(options)) {
    MOED_RETURN_IF_ERROR(CheckExposure(flag, address, options.access, options.insecure));
  }
  for (const auto& [flag, address] : {std::pair("--server", options.server), {"--control", options.control}}) {
    MOED_RETURN_IF_ERROR(Annotate(CheckServerAddress(address), flag));
    if (options.insecure || !options.server_tls.ca.empty() || IsOfThisMachine(address)) continue;
    return InvalidArgument(flag, " ", address, " is another machine, to which all of it would pass in plain text: ",
                           "give --server-tls-ca FILE, or --insecure where nobody listens on that way");
  }
  return absl::OkStatus();
}

absl::Status Apply(const Texts& texts, Options& options) {
  TransportLimits& limits = options.http.limits;
  const auto bytes_of = [](std::string_view flag, const std::string& text, size_t& bytes) -> absl::Status {
    constexpr uint64_t kLeast = 1 << 10, kMost = uint64_t{1} << 30;
    if (text.empty()) return absl::OkStatus();
    const auto value = ParseBytes(text);
    if (!value.ok()) return Annotate(value.status(), flag);
    if (*value < kLeast || *value > kMost) return InvalidArgument(flag, ": \"", text, "\" is not from 1KiB to 1GiB");
    bytes = *value;
    return absl::OkStatus();
  };
  if (!texts.listen.empty()) {
    const auto address = ParseAddress(texts.listen);
    if (!address.ok()) return Annotate(address.status(), "--listen");
    options.http.listen = *address;
  }
  if (!texts.inference_listen.empty()) {
    const auto address = ParseAddress(texts.inference_listen);
    if (!address.ok()) return Annotate(address.status(), "--listen-inference");
    options.inference_listen = *address;
  }
  if (!texts.allow_origin.empty()) {
    const auto origins = AllowedOrigins::Parse(texts.allow_origin);
    if (!origins.ok()) return Annotate(origins.status(), "--allow-origin");
    options.origins = *origins;
  }
  if (std::ranges::find(options.model_names, "") != options.model_names.end()) {
    return InvalidArgument("--model-name: empty, a name is wanted");
  }
  MOED_RETURN_IF_ERROR(bytes_of("--max-body", texts.max_body, limits.body_bytes));
  MOED_RETURN_IF_ERROR(bytes_of("--max-bodies", texts.max_bodies, limits.bodies_bytes));
  if (limits.bodies_bytes < limits.body_bytes) return InvalidArgument("--max-bodies: less than --max-body");
  const bool given = texts.insecure == "true";  // a flag's word for being there
  if (!given && texts.insecure != "on" && texts.insecure != "off") {
    return InvalidArgument("--insecure: \"", texts.insecure, "\"; allowed are: on, off");
  }
  options.insecure = given || texts.insecure == "on";
  MOED_RETURN_IF_ERROR(CheckTlsFiles(options.access.tls));
  const auto sandbox = ParseSandboxRule(texts.sandbox);
  if (!sandbox.ok()) return Annotate(sandbox.status(), "--sandbox");
  options.sandbox = *sandbox;
  options.page = texts.page == "on";
  if (options.control.empty()) options.control = options.server;
  return CheckProtection(options);
}

}  // namespace

void WarnOfExposure(const Options& options) {
  for (const auto& [flag, address] : ServedAddresses(options)) WarnOfExposure(flag, address, options.access);
}

SandboxNeeds SandboxNeedsOf(const Options& options) {
  const TlsFiles& tls = options.access.tls;
  const ClientTls& server = options.server_tls;
  SandboxNeeds needs{.connects = true};
  for (const std::string& file : {tls.certificate, tls.key, tls.client_ca, options.access.tokens, server.ca, server.certificate,
                                  server.key, options.server_token_file}) {
    if (!file.empty() && file != "system") needs.read_files.push_back(file);
  }
  for (const auto& [flag, address] : ServedAddresses(options)) needs.listens.push_back(address);
  return needs;
}

absl::StatusOr<Options> ReadOptions(std::span<const std::string> arguments) {
  Options options;
  Texts texts;
  CLI::App app(kDescription, "moed-http");
  app.get_formatter()->column_width(36);
  app.footer(kFooter);
  app.set_version_flag("--version", StrCat("moed-http ", BuildVersion()), "version and build details");
  Define(app, options, texts);
  bool list = false;
  app.add_flag("--list-parameters", list, "the parameters that each path knows");
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    options.answer = app.help();
    return options;
  } catch (const CLI::CallForVersion& version) {
    options.answer = StrCat(version.what(), "\n");
    return options;
  } catch (const CLI::Error& error) {
    return InvalidArgument(error.what());
  }
  if (list) options.answer = ParameterList();
  options.stray_variables = StrayVariables(environ, "MOED_HTTP_", [&app](std::string_view name) {
    return std::ranges::any_of(app.get_options(), [&](const CLI::Option* option) { return option->get_envname() == name; });
  });
  MOED_RETURN_IF_ERROR(Apply(texts, options));
  return options;
}

}  // namespace moed::http
