#include "server/rpc/generate_call.h"

#include <algorithm>
#include <utility>

#include "core/chat/answer/form_markers.h"
#include "server/wire/error_details.h"

namespace moed {
namespace {

moe::v1::FinishReason ToProto(FinishReason reason) {
  static constexpr moe::v1::FinishReason kReasons[] = {moe::v1::FINISH_REASON_STOP, moe::v1::FINISH_REASON_STOP_STRING,
                                                       moe::v1::FINISH_REASON_LENGTH, moe::v1::FINISH_REASON_TIME_LIMIT,
                                                       moe::v1::FINISH_REASON_CONTEXT};
  return kReasons[static_cast<size_t>(reason)];
}

void FillStats(const FinishInfo& finish, moe::v1::RequestStats& out) {
  out.set_queue_seconds(finish.timings.queue_seconds);
  out.set_prefill_seconds(finish.timings.prefill_seconds);
  out.set_decode_seconds(finish.timings.decode_seconds);
  out.set_ttft_seconds(finish.timings.ttft_seconds);
  out.set_tpot_seconds(finish.timings.tpot_seconds);
  out.set_expert_hits(finish.expert_hits);
  out.set_expert_misses(finish.expert_misses);
  out.set_bytes_read(finish.bytes_read);
  out.set_stall_seconds(finish.stall_seconds);
  out.set_preemptions(finish.preemptions);
  out.set_experts_lowered(finish.experts_lowered);
  out.set_experts_skipped(finish.experts_skipped);
  out.set_experts_masked(finish.experts_masked);
  out.set_gate_mass_lost(finish.gate_mass_lost);
  out.set_choices_dropped(finish.choices_dropped);
  out.set_fast_matmul_tokens(finish.fast_matmul_tokens);
  out.set_lossy_cached_tokens(finish.lossy_cached_tokens);
}

void FillUsage(const FinishInfo& finish, moe::v1::Usage& out) {
  out.set_prompt_tokens(finish.prompt_tokens);
  out.set_completion_tokens(finish.completion_tokens);
  out.set_cached_tokens(finish.cached_tokens);
}

void FillFinish(const FinishInfo& finish, moe::v1::Finish& out) {
  out.set_reason(ToProto(finish.reason));
  out.set_stop_string(finish.stop_string);
  out.set_stop_token_id(finish.stop_token.value());
  FillUsage(finish, *out.mutable_usage());
  out.set_seed(finish.seed);
  out.set_session_tokens(finish.session_tokens);
  FillStats(finish, *out.mutable_stats());
}

void FillLogprob(const TokenInfo& token, const Tokenizer& tokenizer, moe::v1::TokenLogprob& out) {
  out.set_token_id(token.token.value());
  out.set_logprob(token.logprob);
  out.set_token(tokenizer.TokenBytes(token.token));
  for (const auto& [alternative, logprob] : token.top) {
    auto* top = out.add_top();
    top->set_token_id(alternative.value());
    top->set_logprob(logprob);
    top->set_token(tokenizer.TokenBytes(alternative));
  }
}

// One token after the other: as messages all of them would take several times what they take as bytes.
void AddPromptLogprobs(const std::vector<TokenId>& prompt, const FinishInfo& finish, const Tokenizer& tokenizer,
                       Encoded& message) {
  const size_t scored = std::min(prompt.size(), finish.prompt_logprobs.size() + 1);  // a time limit may end it before
  for (size_t i = 0; i < scored; ++i) {
    TokenInfo token{prompt[i]};
    if (i > 0) token.logprob = finish.prompt_logprobs[i - 1];
    if (i > 0 && !finish.prompt_top.empty()) token.top = finish.prompt_top[i - 1];
    moe::v1::GenerateResponse part;
    FillLogprob(token, tokenizer, *part.add_prompt_logprobs());
    AddFields(part, message);
  }
}

// The least that a token and its alternatives take, encoded: two ids of a byte, a float, and the framing.
constexpr size_t kLeastTokenBytes = 3;
constexpr size_t kLeastAlternativeBytes = 9;

// Of the texts of its tokens, which its client chose.
size_t PromptBytes(const std::vector<TokenId>& prompt, const Tokenizer& tokenizer) {
  size_t bytes = 0;
  for (const TokenId token : prompt) bytes += tokenizer.TokenBytes(token).size();
  return bytes;
}

static_assert(RequestLimits().held_answer_bytes == chat::AnswerParser::kMostHeldBytes);

}  // namespace

template <class Response>
Encoded AnswerCall<Response>::NewMessage() {
  if (head_.empty()) {
    Response head;
    head.set_request_id(id());
    head_ = head.SerializeAsString();
  }
  Encoded message{.head = head_};
  if (!std::exchange(first_, false)) return message;
  Response part;
  moe::v1::PromptInfo& info = *part.mutable_prompt_info();
  info.set_prompt_tokens(prompt_tokens_);
  info.set_cached_tokens(cached_tokens_);
  if (wants_prompt_tokens_) {
    for (TokenId token : prompt_) info.add_token_ids(token.value());
  }
  AddFields(part, message);
  // However long its prompt is, a stream has room for its ids beside what it may have unread.
  if (streaming_) pump_.AllowMore(message.bytes());
  return message;
}

template <class Response>
absl::Status AnswerCall<Response>::CheckAnswer(const EngineRequest& request) const {
  const auto alternatives = static_cast<size_t>(request.top_logprobs);
  const size_t each = kLeastTokenBytes + kLeastAlternativeBytes * (1 + alternatives);
  const size_t most = limits().max_answer_bytes / 2;  // Encoded::bytes
  if (request.prompt_logprobs && PromptBytes(request.prompt, *model_->tokenizer) + request.prompt.size() * each > most) {
    return FieldError(alternatives > 0 ? "response.top_logprobs" : "response.prompt_logprobs", "those of the prompt's ",
                      request.prompt.size(), " tokens, with ", alternatives, " alternatives each, take more than the ", most,
                      " bytes that one message may: ask for fewer, or for a shorter prompt's");
  }
  if (streaming_ || !request.logprobs || !request.stopping.max_new_tokens) return absl::OkStatus();
  const auto prompt_tokens = static_cast<int>(request.prompt.size());
  const int most_tokens = model_->engine->limits().MostNewTokens(request.stopping.max_new_tokens, prompt_tokens);
  const auto tokens = static_cast<size_t>(std::max(most_tokens, 0));  // what is below 1 the engine refuses
  if (tokens * each <= most) return absl::OkStatus();
  return FieldError("response.top_logprobs", alternatives, " alternatives for each of ", tokens, " tokens take more than the ",
                    most, " bytes that one message may: have it streamed, or ask for less");
}

template <class Response>
PushResult AnswerCall<Response>::Push(TokenDelta delta) {
  Encoded message = NewMessage();
  const size_t kept_bytes = AddText(std::move(delta.text), delta.tokens, message);
  Response part;
  for (const TokenInfo& token : delta.tokens) {
    part.add_token_ids(token.token.value());
    if (wants_logprobs_) FillLogprob(token, *model_->tokenizer, *part.add_logprobs());
  }
  AddFields(part, message);
  const size_t bytes = message.bytes() + kept_bytes;
  return pump_.Push(std::move(message), bytes);
}

template <class Response>
void AnswerCall<Response>::Complete(const FinishInfo& finish) {
  Encoded message = NewMessage();
  Response part;
  FillFinish(finish, *part.mutable_finish());
  if (!generates_) part.mutable_finish()->set_reason(moe::v1::FINISH_REASON_LENGTH);
  AddEnd(message, *part.mutable_finish());
  AddFields(part, message);
  if (wants_prompt_logprobs_) AddPromptLogprobs(prompt_, finish, *model_->tokenizer, message);
  const size_t bytes = message.bytes();
  pump_.End(grpc::Status::OK, std::move(message), bytes);
  environment_.live.OnAnswered(this, pump_.unsent_bytes());
}

template <class Response>
void AnswerCall<Response>::Fail(const absl::Status& status) {
  pump_.End(ToGrpcStatus(status));
}

template class AnswerCall<moe::v1::GenerateResponse>;
template class AnswerCall<moe::v1::ChatResponse>;

void ChatCall::TakeParser(std::unique_ptr<chat::AnswerParser> parser, bool skip_special_tokens) {
  answer_.emplace(std::move(parser), !streaming());
  if (skip_special_tokens) filter_.emplace(*model_->tokenizer, chat::MarkersOf(*model_->answer_format));
}

size_t ChatCall::AddText(std::string text, std::span<const TokenInfo> tokens, Encoded& message) {
  const size_t before = answer_->kept_bytes();
  if (filter_) text = filter_->Put(tokens, text);
  answer_->Add(text, tokens.size(), message);
  return 2 * (answer_->kept_bytes() - before);
}

void ChatCall::AddEnd(Encoded& message, moe::v1::Finish& finish) {
  const bool by_itself = finish.reason() == moe::v1::FINISH_REASON_STOP || finish.reason() == moe::v1::FINISH_REASON_STOP_STRING;
  if (filter_) answer_->Add(filter_->Take(), 0, message);
  answer_->End(!by_itself, message);
  finish.mutable_usage()->set_reasoning_tokens(static_cast<int32_t>(answer_->reasoning_tokens()));
  if (answer_->called() && finish.reason() == moe::v1::FINISH_REASON_STOP) finish.set_reason(moe::v1::FINISH_REASON_TOOL_CALLS);
}

void ScoreCall::Complete(const FinishInfo& finish) {
  moe::v1::ScoreResponse message;
  message.set_request_id(id());
  for (TokenId token : prompt_) message.add_token_ids(token.value());
  double nll = 0;
  for (float logprob : finish.prompt_logprobs) {
    message.add_logprobs(logprob);
    nll -= logprob;
  }
  message.set_nll(nll);
  for (const auto& alternatives : finish.prompt_top) {
    auto* top = message.add_top();
    for (const auto& [token, logprob] : alternatives) {
      top->add_token_ids(token.value());
      top->add_logprobs(logprob);
    }
  }
  FillStats(finish, *message.mutable_stats());
  FillUsage(finish, *message.mutable_usage());
  Encoded encoded;
  AddFields(message, encoded);
  const size_t bytes = encoded.bytes();
  pump_.End(grpc::Status::OK, std::move(encoded), bytes);
  environment_.live.OnAnswered(this, pump_.unsent_bytes());
}

void ScoreCall::Fail(const absl::Status& status) { pump_.End(ToGrpcStatus(status)); }

}  // namespace moed
