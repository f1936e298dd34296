#include "server/http/openai/tokenize.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "server/http/api/ask_daemon.h"
#include "server/http/api/parameters.h"
#include "server/http/openai/reply.h"

namespace moed::http {
namespace {

using moe::v1::DetokenizeRequest;
using moe::v1::DetokenizeResponse;
using moe::v1::TokenizeRequest;
using moe::v1::TokenizeResponse;

// With the model's name, which may be left out.
template <class Request>
struct Named {
  std::string model;
  Request request;
};

template <class Request>
absl::Status ApplyModel(const Json& value, Named<Request>& named) {
  MOED_ASSIGN_OR_RETURN(named.model, StringOf(value));
  return absl::OkStatus();
}

absl::Status ApplyPrompt(const Json& value, Named<TokenizeRequest>& named) {
  MOED_ASSIGN_OR_RETURN(*named.request.mutable_text(), StringOf(value));
  return absl::OkStatus();
}
absl::Status ApplyAddSpecialTokens(const Json& value, Named<TokenizeRequest>& named) {
  MOED_ASSIGN_OR_RETURN(const bool add, BoolOf(value));
  named.request.mutable_options()->set_add_special_tokens(add);
  return absl::OkStatus();
}
absl::Status ApplyTokenStrings(const Json& value, Named<TokenizeRequest>&) {
  return OnlyValue(value, false, "tokens are told by their ids");
}
absl::Status ApplyTokens(const Json& value, Named<DetokenizeRequest>& named) {
  named.request.mutable_token_ids()->Reserve(static_cast<int>(value.size()));
  return ReadElements(value, [&](const Json& element) -> absl::Status {
    MOED_ASSIGN_OR_RETURN(const int32_t id, Int32Of(element));
    named.request.add_token_ids(id);
    return absl::OkStatus();
  });
}

constexpr Parameter<Named<TokenizeRequest>> kTokenize[] = {{"model", ApplyModel<TokenizeRequest>},
                                                           {"prompt", ApplyPrompt},
                                                           {"add_special_tokens", ApplyAddSpecialTokens},
                                                           {"return_token_strs", ApplyTokenStrings}};
constexpr Parameter<Named<DetokenizeRequest>> kDetokenize[] = {{"model", ApplyModel<DetokenizeRequest>}, {"tokens", ApplyTokens}};

constexpr FieldName kFieldNames[] = {{"text", "prompt"}, {"token_ids", "tokens"}};

// `needed`: the parameter that has to be given.
template <class Request>
absl::StatusOr<Named<Request>> Read(const std::string& body, std::span<const Parameter<Named<Request>>> table,
                                    std::string_view needed) {
  MOED_ASSIGN_OR_RETURN(const Json json, ParseJson(body));
  Named<Request> named;
  const std::span<const Parameter<Named<Request>>> nothing_else;
  MOED_RETURN_IF_ERROR(ReadParameters(json, table, nothing_else, named));
  if (!HasMember(json, needed)) return InvalidArgument(needed, ": missing");
  return named;
}

// Whether it may be asked of the model; otherwise it is answered.
template <class Request>
bool IsTaken(const absl::StatusOr<Named<Request>>& named, const ModelNames& models, Exchange& exchange) {
  if (!named.ok()) {
    exchange.Reply(OpenAiError(ErrorOf(named.status())));
    return false;
  }
  const auto refusal = named->model.empty() ? std::nullopt : models.Refusal(named->model);
  if (refusal) exchange.Reply(OpenAiError(*refusal));
  return !refusal;
}

}  // namespace

void HandleTokenize(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange) {
  auto named = Read<TokenizeRequest>(std::exchange(exchange->request().body, {}), kTokenize, "prompt");
  if (!IsTaken(named, models, *exchange)) return;
  const auto served = daemon.model();
  AskDaemon<TokenizeResponse>(
      daemon, exchange, std::move(named->request),
      [](auto& stub, auto* context, const auto* request, auto* response, auto* call) {
        stub.Tokenize(context, request, response, call);
      },
      [context = served.ok() ? served->max_context : 0](const grpc::Status& status, const TokenizeResponse& answer) {
        if (!status.ok()) return OpenAiError(ErrorOf(status, kFieldNames));
        return HttpReply{.body = Dumped({{"count", answer.token_ids_size()},
                                         {"max_model_len", context},
                                         {"tokens", answer.token_ids()},
                                         {"token_strs", nullptr}})};
      });
}

void HandleDetokenize(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange) {
  auto named = Read<DetokenizeRequest>(std::exchange(exchange->request().body, {}), kDetokenize, "tokens");
  if (!IsTaken(named, models, *exchange)) return;
  named->request.set_skip_special_tokens(false);
  AskDaemon<DetokenizeResponse>(
      daemon, exchange, std::move(named->request),
      [](auto& stub, auto* context, const auto* request, auto* response, auto* call) {
        stub.Detokenize(context, request, response, call);
      },
      [](const grpc::Status& status, const DetokenizeResponse& answer) {
        if (!status.ok()) return OpenAiError(ErrorOf(status, kFieldNames));
        return HttpReply{.body = Dumped({{"prompt", answer.text()}})};
      });
}

}  // namespace moed::http
