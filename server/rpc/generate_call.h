// Calls of the Inference service that the engine answers, with their response messages.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "moe/v1/inference.pb.h"
#include "server/rpc/chat_answer.h"
#include "server/rpc/encoded.h"
#include "server/rpc/engine_call.h"
#include "server/rpc/response_pump.h"
#include "server/rpc/special_token_filter.h"

namespace moed {

// Generate and Chat, in one message or streamed. Of a Response only the numbers of its fields matter here.
template <class Response>
class AnswerCall : public EngineCall {
 public:
  AnswerCall(const CallEnvironment& environment, Method method, ResponseTransport<Encoded>& transport)
      : EngineCall(environment, method),
        streaming_(method == Method::kGenerateStream || method == Method::kChatStream),
        pump_(transport, environment.clock,
              {streaming_, MostBytes(limits(), streaming_), AppendEncoded, [this] { SendLater(); }}) {}
  ResponsePump<Encoded>& pump() { return pump_; }

 protected:
  // The next piece of the answer, the tokens that came with it, or its end, into a message. Returns the bytes that are kept for
  // later ones.
  virtual size_t AddText(std::string text, std::span<const TokenInfo> /*tokens*/, Encoded& message) {
    message.text = std::move(text);
    return 0;
  }
  virtual void AddEnd(Encoded&, moe::v1::Finish&) {}
  bool streaming() const { return streaming_; }

 private:
  void Open() override { pump_.Open(); }
  absl::Status CheckAnswer(const EngineRequest& request) const override;
  PushResult Push(TokenDelta delta) override;
  void Complete(const FinishInfo& finish) override;
  void Fail(const absl::Status& status) override;
  bool Stalled() const override { return pump_.Stalled(limits().write_timeout_nanos); }
  void Abandon() override { pump_.Abandon(); }
  void SendNow() override { pump_.Send(); }
  Encoded NewMessage();
  static size_t MostBytes(const CallLimits& limits, bool streaming) {
    return streaming ? limits.max_unsent_bytes : limits.max_answer_bytes;
  }

  const bool streaming_;
  ResponsePump<Encoded> pump_;
  std::string head_;   // request_id, encoded; constant once a message is made
  bool first_ = true;  // engine thread: the next message is the first one
};
using GenerateCall = AnswerCall<moe::v1::GenerateResponse>;

class ChatCall final : public AnswerCall<moe::v1::ChatResponse> {
 public:
  using AnswerCall::AnswerCall;

 private:
  void TakeParser(std::unique_ptr<chat::AnswerParser> parser, bool skip_special_tokens) override;
  size_t AddText(std::string text, std::span<const TokenInfo> tokens, Encoded& message) override;
  void AddEnd(Encoded& message, moe::v1::Finish& finish) override;

  // There once the call is submitted; then the engine's thread's.
  std::optional<ChatAnswer> answer_;
  std::optional<SpecialTokenFilter> filter_;  // nothing: all of them stay
};

class ScoreCall final : public EngineCall {
 public:
  ScoreCall(const CallEnvironment& environment, Method method, ResponseTransport<Encoded>& transport)
      : EngineCall(environment, method),
        pump_(transport, environment.clock, {.streaming = false, .send_later = [this] { SendLater(); }}) {}
  ResponsePump<Encoded>& pump() { return pump_; }

 private:
  void Open() override { pump_.Open(); }
  PushResult Push(TokenDelta) override { return PushResult::kTaken; }  // scoring generates nothing
  void Complete(const FinishInfo& finish) override;
  void Fail(const absl::Status& status) override;
  bool Stalled() const override { return pump_.Stalled(limits().write_timeout_nanos); }
  void Abandon() override { pump_.Abandon(); }
  void SendNow() override { pump_.Send(); }

  ResponsePump<Encoded> pump_;
};

}  // namespace moed
