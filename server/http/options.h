// What the program was told.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/channel_credentials.h"
#include "server/http/allowed_origins.h"
#include "server/http/transport/http_server.h"
#include "server/sandbox/sandbox.h"
#include "server/wire/access.h"

namespace moed::http {

struct Options {
  std::string server = "127.0.0.1:50051";
  std::string control;            // "" = as server
  ClientTls server_tls;           // towards the daemon
  std::string server_token_file;  // what this program presents for questions of its own; "" = nothing
  AccessFiles access;
  bool insecure = false;  // other machines may reach addresses that are not protected, and the daemon may be one
  SandboxRule sandbox = SandboxRule::kOn;
  std::vector<std::string> model_names;
  bool page = true;
  AllowedOrigins origins;
  HttpServerOptions http;
  std::optional<Address> inference_listen;  // the Open Inference Protocol over gRPC
  std::string log_level = "info";
  std::vector<std::string> stray_variables;  // MOED_HTTP_* that no flag has
  std::string answer;                        // not empty: print it and leave (--help, --version, --list-parameters)
};

// Flags, and variables MOED_HTTP_* where a flag is not given. INVALID_ARGUMENT names the flag.
absl::StatusOr<Options> ReadOptions(std::span<const std::string> arguments);

// Logs what is open to other machines all the same.
void WarnOfExposure(const Options& options);

// What it still needs once it knows them.
SandboxNeeds SandboxNeedsOf(const Options& options);

}  // namespace moed::http
