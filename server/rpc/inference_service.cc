#include "server/rpc/inference_service.h"

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/status.h"
#include "server/rpc/error_details.h"
#include "server/rpc/generate_call.h"
#include "server/rpc/reactors.h"
#include "server/rpc/request_translation.h"

namespace moed {
namespace {

using moe::v1::GenerateResponse;
using moe::v1::ScoreResponse;

// A call whose whole work is a function on a worker. Deleted by OnDone.
class WorkerReactor final : public grpc::ServerUnaryReactor {
 public:
  using Work = std::function<absl::Status(const LoadedModel&)>;
  WorkerReactor(const CallEnvironment& environment, Method method) : environment_(environment), method_(method) {}

  void Begin(size_t bytes, Work work) {
    if (absl::Status ready = CheckReady(environment_.state, environment_.metrics); !ready.ok()) return End(ready);
    if (bytes > environment_.limits.max_prompt_bytes) {
      environment_.metrics.CountRejected(Rejection::kTooLarge);
      return End(InvalidArgument("request: ", bytes, " bytes, at most ", environment_.limits.max_prompt_bytes, " are allowed"));
    }
    auto job = [this, work = std::move(work)] { End(Run(work)); };
    if (!environment_.workers.Submit(bytes, std::move(job))) {
      environment_.metrics.CountRejected(Rejection::kQueueFull);
      End(ResourceExhausted("the queue is full: too many texts wait to be tokenised"));
    }
  }

  void OnDone() override { delete this; }

 private:
  absl::Status Run(const Work& work) const {
    try {
      return work(*environment_.state.loaded());
    } catch (const std::exception& error) {
      return Internal("the request failed: ", error.what());
    }
  }

  void End(const absl::Status& status) {
    environment_.metrics.CountEnd(method_, status.code());
    RequestRecord record;
    record.method = method_;
    record.status = status;
    environment_.log.Write(record);
    Finish(ToGrpcStatus(status));
  }

  const CallEnvironment& environment_;
  const Method method_;
};

}  // namespace

grpc::ServerUnaryReactor* InferenceService::Generate(grpc::CallbackServerContext* context,
                                                     const moe::v1::GenerateRequest* request, GenerateResponse* response) {
  auto* reactor = new UnaryEngineReactor<GenerateResponse, GenerateCall>(context, environment_.live, response);
  reactor->Begin([&](auto& transport) { return std::make_shared<GenerateCall>(environment_, /*streaming=*/false, transport); },
                 [&] { return TranslateGenerate(*request); });
  return reactor;
}

grpc::ServerWriteReactor<GenerateResponse>* InferenceService::GenerateStream(grpc::CallbackServerContext* context,
                                                                             const moe::v1::GenerateRequest* request) {
  auto* reactor = new StreamEngineReactor<GenerateResponse, GenerateCall>(context, environment_.live);
  reactor->Begin([&](auto& transport) { return std::make_shared<GenerateCall>(environment_, /*streaming=*/true, transport); },
                 [&] { return TranslateGenerate(*request); });
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::Score(grpc::CallbackServerContext* context, const moe::v1::ScoreRequest* request,
                                                  ScoreResponse* response) {
  auto* reactor = new UnaryEngineReactor<ScoreResponse, ScoreCall>(context, environment_.live, response);
  reactor->Begin([&](auto& transport) { return std::make_shared<ScoreCall>(environment_, transport); },
                 [&] { return TranslateScore(*request); });
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext*, const moe::v1::TokenizeRequest* request,
                                                     moe::v1::TokenizeResponse* response) {
  auto* reactor = new WorkerReactor(environment_, Method::kTokenize);
  reactor->Begin(request->text().size(), [request, response](const LoadedModel& model) -> absl::Status {
    auto tokens = model.tokenizer->Encode(request->text(), TranslateTokenizeOptions(request->options()));
    if (!tokens.ok())
      return FieldError("text", std::string_view(tokens.status().message().data(), tokens.status().message().size()));
    response->mutable_token_ids()->Reserve(static_cast<int>(tokens->size()));
    for (TokenId token : *tokens) response->add_token_ids(token.value());
    return absl::OkStatus();
  });
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext*, const moe::v1::DetokenizeRequest* request,
                                                       moe::v1::DetokenizeResponse* response) {
  auto* reactor = new WorkerReactor(environment_, Method::kDetokenize);
  reactor->Begin(request->token_ids_size() * sizeof(TokenId), [request, response](const LoadedModel& model) -> absl::Status {
    std::vector<TokenId> tokens;
    tokens.reserve(request->token_ids_size());
    for (int32_t id : request->token_ids()) tokens.push_back(TokenId(id));
    auto text = model.tokenizer->Decode(tokens, request->has_skip_special_tokens() ? request->skip_special_tokens() : true);
    if (!text.ok())
      return FieldError("token_ids", std::string_view(text.status().message().data(), text.status().message().size()));
    response->set_text(*std::move(text));
    return absl::OkStatus();
  });
  return reactor;
}

}  // namespace moed
