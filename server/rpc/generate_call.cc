#include "server/rpc/generate_call.h"

#include <utility>

#include "server/rpc/error_details.h"

namespace moed {
namespace {

moe::v1::FinishReason ToProto(FinishReason reason) {
  static constexpr moe::v1::FinishReason kReasons[] = {moe::v1::FINISH_REASON_STOP, moe::v1::FINISH_REASON_STOP_STRING,
                                                       moe::v1::FINISH_REASON_LENGTH, moe::v1::FINISH_REASON_TIME_LIMIT};
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
}

void FillFinish(const FinishInfo& finish, moe::v1::Finish& out) {
  out.set_reason(ToProto(finish.reason));
  out.set_stop_string(finish.stop_string);
  out.set_stop_token_id(finish.stop_token.value());
  out.mutable_usage()->set_prompt_tokens(finish.prompt_tokens);
  out.mutable_usage()->set_completion_tokens(finish.completion_tokens);
  out.mutable_usage()->set_cached_tokens(finish.cached_tokens);
  out.set_seed(finish.seed);
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

}  // namespace

void AppendMessage(moe::v1::GenerateResponse& to, moe::v1::GenerateResponse&& from) {
  to.mutable_text()->append(from.text());
  from.clear_text();
  from.clear_request_id();
  to.MergeFrom(from);
}

moe::v1::GenerateResponse GenerateCall::NewMessage() {
  moe::v1::GenerateResponse message;
  message.set_request_id(id());
  if (!std::exchange(first_, false)) return message;
  moe::v1::PromptInfo& info = *message.mutable_prompt_info();
  info.set_prompt_tokens(prompt_tokens_);
  info.set_cached_tokens(cached_tokens_);
  for (TokenId token : prompt_) info.add_token_ids(token.value());
  return message;
}

PushResult GenerateCall::Push(const TokenDelta& delta) {
  moe::v1::GenerateResponse message = NewMessage();
  message.set_text(delta.text);
  for (const TokenInfo& token : delta.tokens) {
    message.add_token_ids(token.token.value());
    if (wants_logprobs_) FillLogprob(token, *model_->tokenizer, *message.add_logprobs());
  }
  return pump_.Push(std::move(message), static_cast<int>(delta.tokens.size()));
}

void GenerateCall::Complete(const FinishInfo& finish) {
  moe::v1::GenerateResponse message = NewMessage();
  FillFinish(finish, *message.mutable_finish());
  pump_.End(grpc::Status::OK, std::move(message));
}

void GenerateCall::Fail(const absl::Status& status) { pump_.End(ToGrpcStatus(status)); }

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
  pump_.End(grpc::Status::OK, std::move(message));
}

void ScoreCall::Fail(const absl::Status& status) { pump_.End(ToGrpcStatus(status)); }

}  // namespace moed
