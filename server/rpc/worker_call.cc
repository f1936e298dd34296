#include "server/rpc/worker_call.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "server/rpc/chat_translation.h"
#include "server/rpc/request_translation.h"
#include "server/wire/error_details.h"

namespace moed {
namespace {

constexpr size_t kLeastTokenLimit = 1024;

absl::Status FieldErrorOf(const char* field, const absl::Status& status) {
  return FieldError(field, std::string_view(status.message().data(), status.message().size()));
}

}  // namespace

void WorkerCall::Start(Arrival<Encoded> arrival) {
  auto self = std::static_pointer_cast<WorkerCall>(shared_from_this());
  record_.session_id = SessionOf(tenant(), std::move(arrival.session_id).value_or(""));
  Begin(arrival.fits, arrival.id, arrival.bytes, [self, read = std::move(arrival.read)] { self->Finish(read(*self->model_)); });
}

void WorkerCall::Finish(absl::StatusOr<Encoded> answer) {
  if (const auto cancelled = cancellation()) return Account(cancelled->status);
  if (!answer.ok()) return Reject(answer.status(), std::nullopt);
  Account(absl::OkStatus());
  Guarded([&] {
    const size_t bytes = answer->bytes();
    pump_.Open();
    pump_.End(grpc::Status::OK, *std::move(answer), bytes);
    environment_.live.OnAnswered(this, pump_.unsent_bytes());
  });
}

void WorkerCall::Fail(const absl::Status& status) { pump_.End(ToGrpcStatus(status)); }

absl::StatusOr<Encoded> Tokenize(const moe::v1::TokenizeRequest& request, const LoadedModel& model, const RequestLimits& limits) {
  EncodeOptions options = TranslateTokenizeOptions(request.options());
  options.max_tokens = std::max(limits.text_bytes / 2, kLeastTokenLimit);
  options.max_word_bytes = limits.word_bytes;
  auto tokens = model.tokenizer->Encode(request.text(), options);
  if (!tokens.ok()) return FieldErrorOf("text", tokens.status());
  moe::v1::TokenizeResponse response;
  response.mutable_token_ids()->Reserve(static_cast<int>(tokens->size()));
  for (TokenId token : *tokens) response.add_token_ids(token.value());
  Encoded answer;
  AddFields(response, answer);
  return answer;
}

absl::StatusOr<Encoded> Detokenize(const moe::v1::DetokenizeRequest& request, const LoadedModel& model,
                                   const RequestLimits& limits) {
  std::vector<TokenId> tokens;
  tokens.reserve(static_cast<size_t>(request.token_ids_size()));
  for (int32_t id : request.token_ids()) tokens.push_back(TokenId(id));
  const bool skip_special = request.has_skip_special_tokens() ? request.skip_special_tokens() : true;
  auto text = model.tokenizer->Decode(tokens, skip_special, limits.text_bytes);
  if (!text.ok()) return FieldErrorOf("token_ids", text.status());
  moe::v1::DetokenizeResponse response;
  response.set_text(*std::move(text));
  Encoded answer;
  AddFields(response, answer);
  return answer;
}

absl::StatusOr<Encoded> CountTokens(moe::v1::ChatRequest request, const LoadedModel& model, const RequestLimits& limits,
                                    const std::function<bool()>& stopping) {
  MOED_ASSIGN_OR_RETURN(PendingRequest pending, TranslateChat(std::move(request), model, limits));
  MOED_ASSIGN_OR_RETURN(const chat::MarkedText text, RenderConversation(*pending.conversation, model, limits, stopping));
  if (stopping()) return absl::CancelledError("nobody waits for the count");
  EncodeOptions options{.add_special_tokens = false, .foreign = text.foreign};
  options.max_word_bytes = limits.word_bytes;
  auto tokens = model.tokenizer->Encode(text.text, options);
  if (!tokens.ok()) return FieldErrorOf("messages", tokens.status());
  moe::v1::CountTokensResponse response;
  response.set_prompt_tokens(static_cast<int32_t>(tokens->size()));
  Encoded answer;
  AddFields(response, answer);
  return answer;
}

absl::StatusOr<Encoded> DeleteSession(const moe::v1::DeleteSessionRequest& request, const LoadedModel& model,
                                      const RequestLimits&) {
  if (request.session_id().empty()) return FieldError("session_id", "empty: name the conversation to forget");
  MOED_RETURN_IF_ERROR(model.engine->DeleteSession(request.session_id()));
  return Encoded();
}

}  // namespace moed
