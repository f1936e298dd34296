// moed-http: OpenAI's and Anthropic's APIs over HTTP and the Open Inference Protocol, beside a moed.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/base/bounded_file.h"
#include "core/base/standard_output.h"
#include "core/base/status.h"
#include "core/base/version.h"
#include "server/http/anthropic/error.h"
#include "server/http/anthropic/messages.h"
#include "server/http/anthropic/models.h"
#include "server/http/api/percent_decoded.h"
#include "server/http/expert_watch.h"
#include "server/http/inference/arrived_request.h"
#include "server/http/inference/endpoints.h"
#include "server/http/inference/inference_server.h"
#include "server/http/inference/reply.h"
#include "server/http/metrics_route.h"
#include "server/http/openai/chat.h"
#include "server/http/openai/completions.h"
#include "server/http/openai/models.h"
#include "server/http/openai/reply.h"
#include "server/http/openai/tokenize.h"
#include "server/http/options.h"
#include "server/http/page.h"
#include "server/http/request_metrics.h"
#include "server/http/responses/responses.h"
#include "server/http/router.h"
#include "server/http/transport/access_log.h"
#include "server/http/upstream/daemon.h"
#include "server/wire/grpc_log.h"
#include "server/wire/openssl_exit.h"
#include "server/wire/rpc_server.h"
#include "server/wire/stray_variables.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace moed::http {
namespace {

constexpr std::string_view kModelsPath = "/v1/models/";
constexpr std::string_view kAnthropicId = "request-id";

HttpReply Text(int status, std::string text) { return {.status = status, .content_type = "text/plain", .body = std::move(text)}; }

Route AliveRoute(std::string_view path) {
  return {"GET", path, true, OpenAiError, [](const auto& exchange) { exchange->Reply(Text(200, "ok\n")); }};
}

std::vector<Route> MakeRoutes(Daemon& daemon, const ModelNames& models, ExpertWatches& watches) {
  return {
      AliveRoute("/healthz"),
      AliveRoute("/health"),  // as vLLM has it
      {"GET", "/readyz", true, OpenAiError,
       [&](const auto& exchange) {
         exchange->Reply(daemon.serves() ? Text(200, "ok\n") : Text(503, "the daemon does not serve, or the server is ending\n"));
       }},
      {"GET", "/v1/models", false, OpenAiError,
       [&](const auto& exchange) {
         const bool anthropic = AsksAnthropic(exchange->request());
         if (anthropic) exchange->request().id_header = kAnthropicId;
         exchange->Reply(anthropic ? ListAnthropicModels(models) : ListModels(models));
       }},
      {"GET", kModelsPath, false, OpenAiError,
       [&](const auto& exchange) {
         HttpRequest& request = exchange->request();
         const bool anthropic = AsksAnthropic(request);
         if (anthropic) request.id_header = kAnthropicId;
         const std::string name = PercentDecoded(std::string_view(request.path).substr(kModelsPath.size()));
         exchange->Reply(anthropic ? OneAnthropicModel(models, name) : OneModel(models, name));
       }},
      {"POST", "/v1/completions", false, OpenAiError, [&](const auto& exchange) { HandleCompletion(daemon, models, exchange); }},
      {"POST", "/v1/chat/completions", false, OpenAiError, [&](const auto& exchange) { HandleChat(daemon, models, exchange); }},
      {"POST", "/v1/responses", false, OpenAiError, [&](const auto& exchange) { HandleResponses(daemon, models, exchange); }},
      {"POST", "/v1/responses/input_tokens", false, OpenAiError,
       [&](const auto& exchange) { HandleInputTokens(daemon, models, exchange); }},
      {"POST", "/v1/messages", false, AnthropicError, [&](const auto& exchange) { HandleMessages(daemon, models, exchange); },
       /*tensors=*/false, Scope::kInfer, kAnthropicId},
      {"POST", "/v1/messages/count_tokens", false, AnthropicError,
       [&](const auto& exchange) { HandleCountTokens(daemon, models, exchange); }, /*tensors=*/false, Scope::kInfer,
       kAnthropicId},
      {"POST", "/tokenize", false, OpenAiError, [&](const auto& exchange) { HandleTokenize(daemon, models, exchange); }},
      {"POST", "/detokenize", false, OpenAiError, [&](const auto& exchange) { HandleDetokenize(daemon, models, exchange); }},
      {"GET", "/v2", false, InferenceError, [](const auto& exchange) { exchange->Reply(DescribeServer()); }},
      {"GET", "/v2/health/live", true, InferenceError,
       [](const auto& exchange) { exchange->Reply({.body = "{\"live\":true}"}); }},
      {"GET", "/v2/health/ready", true, InferenceError, [&](const auto& exchange) { exchange->Reply(TellReady(daemon)); }},
      {"GET", "/v2/models/", false, InferenceError,
       [&](const auto& exchange) { exchange->Reply(DescribeModel(daemon, models, exchange->request().path)); }},
      {"POST", "/v2/models/", false, InferenceError, [&](const auto& exchange) { HandleInference(daemon, models, exchange); },
       /*tensors=*/true},
      {"GET", "/moed/experts", false, OpenAiError, [&](const auto& exchange) { watches.Begin(exchange); }, /*tensors=*/false,
       Scope::kObserve},
  };
}

int Fail(const absl::Status& status, int exit_code) {
  std::fprintf(stderr, "moed-http: %s\n", std::string(status.message().data(), status.message().size()).c_str());
  return exit_code;
}

InferenceServerOptions InferenceOptions(const Options& options, const Access& access) {
  const TransportLimits& limits = options.http.limits;
  return {.listen = *options.inference_listen,
          .message_bytes = limits.body_bytes,
          .limits = {.calls = limits.connections, .bytes = limits.bodies_bytes, .write_seconds = limits.write_seconds},
          .idle_seconds = limits.idle_seconds,
          .certificates = access.certificates()};
}

// Until a signal, and until what is answered then is answered.
int Serve(const Options& options, Access& access, Daemon& daemon) {
  const auto fail = [&daemon](const absl::Status& status) {
    daemon.End();
    return Fail(status, 1);
  };
  RequestMetrics metrics;
  const ModelNames models(daemon, options.model_names);
  ExpertWatches watches(daemon);
  std::vector<Route> routes = MakeRoutes(daemon, models, watches);
  routes.push_back(MetricsRoute(metrics, daemon, access.certificates()));
  if (options.page) std::ranges::move(PageRoutes(), std::back_inserter(routes));
  Router router(std::move(routes), access.tokens(),
                {{"/v1/messages/", AnthropicError}, {"/v2/", InferenceError}, {"", OpenAiError}}, options.origins);
  AccessLog log([&](const AccessRecord& record) {
    const bool inference = record.path.starts_with(kInferenceService);
    metrics.Count(record, inference ? kInferenceService : router.RouteOf(record.path));
  });
  HttpServerOptions http = options.http;
  http.certificates = access.certificates();
  const auto server = HttpServer::Listen(http, router, log);
  if (!server.ok()) return fail(server.status());
  std::unique_ptr<InferenceServer> inference;
  if (options.inference_listen) {
    auto listening = InferenceServer::Listen(InferenceOptions(options, access), daemon, models, log, access.tokens());
    if (!listening.ok()) return fail(listening.status());
    inference = *std::move(listening);
    spdlog::info("listening on grpc://{} for the Open Inference Protocol", inference->address());
  }
  spdlog::info("listening on {}://{}, for the daemon at {}", http.certificates == nullptr ? "http" : "https",
               (*server)->address(), options.server);
  std::chrono::system_clock::time_point drain_end;
  (*server)->Serve([&] { access.Reload(); }, [&] { daemon.EndServing(); },
                   [&] {
                     drain_end = std::chrono::system_clock::now() + std::chrono::seconds(options.http.drain_seconds);
                     router.Drain();
                     watches.End();
                     if (inference) inference->Drain();
                   });
  if (inference) inference->Shutdown(drain_end);
  daemon.End();
  return 0;
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  if (path.empty()) return "";
  constexpr size_t kMostBytes = 64 << 10;
  const absl::StatusOr<std::string> contents = ReadBoundedFile(path, kMostBytes);
  if (!contents.ok()) return Annotate(contents.status(), "--server-token-file");
  std::istringstream file(*contents);
  std::string token, more;
  if (!(file >> token) || file >> more) return InvalidArgument("--server-token-file: '", path, "' is not one word");
  return token;
}

int Run(const Options& options) {
  const auto access = Access::Open(options.access);
  if (!access.ok()) return Fail(access.status(), 2);
  grpc::ChannelArguments arguments;
  const auto credentials = MakeChannelCredentials(options.server_tls, "--server-tls-", arguments);
  if (!credentials.ok()) return Fail(credentials.status(), 2);
  const auto token = ReadToken(options.server_token_file);
  if (!token.ok()) return Fail(token.status(), 2);
  Daemon daemon({options.server, options.control, *credentials, arguments, *token});
  return Serve(options, **access, daemon);
}

}  // namespace
}  // namespace moed::http

int main(int argc, char** argv) {
  // What is freed leaves the process, and threads do not hoard arenas.
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MMAP_THRESHOLD, 64 << 10);
  mallopt(M_TRIM_THRESHOLD, 128 << 10);
  moed::AllowSmallReads();
  moed::ExitWithoutOpenSsl();
  std::signal(SIGPIPE, SIG_IGN);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto options = moed::http::ReadOptions(arguments);
  if (!options.ok()) return moed::http::Fail(options.status(), 2);
  if (!options->answer.empty()) {
    std::fputs(options->answer.c_str(), stdout);
    return moed::EndOfOutput("moed-http", 0);
  }
  spdlog::set_default_logger(spdlog::stderr_logger_mt("moed-http"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  spdlog::set_level(spdlog::level::from_str(options->log_level));
  spdlog::flush_on(spdlog::level::info);
  moed::TakeGrpcLog();
  spdlog::info("moed-http {}", moed::BuildVersion());
  moed::http::WarnOfExposure(*options);
  moed::WarnOfStrayVariables(options->stray_variables, "moed-http");
  const absl::Status confined = moed::EnterSandbox(options->sandbox, moed::http::SandboxNeedsOf(*options));
  return confined.ok() ? moed::http::Run(*options) : moed::http::Fail(confined, 2);
}
