// Calls of the Inference service that the engine answers, with their response messages.
#pragma once

#include "moe/v1/inference.pb.h"
#include "server/rpc/engine_call.h"
#include "server/rpc/response_pump.h"

namespace moed {

// What follows is appended to what was not sent yet; `text` is joined.
void AppendMessage(moe::v1::GenerateResponse& to, moe::v1::GenerateResponse&& from);

// Generate and GenerateStream.
class GenerateCall final : public EngineCall {
 public:
  GenerateCall(const CallEnvironment& environment, bool streaming, ResponseTransport<moe::v1::GenerateResponse>& transport)
      : EngineCall(environment, streaming ? Method::kGenerateStream : Method::kGenerate),
        pump_(transport, environment.clock,
              {streaming, environment.limits.max_unsent_tokens, AppendMessage, [this] { SendLater(); }}) {}
  ResponsePump<moe::v1::GenerateResponse>& pump() { return pump_; }

 private:
  void Open() override { pump_.Open(); }
  PushResult Push(const TokenDelta& delta) override;
  void Complete(const FinishInfo& finish) override;
  void Fail(const absl::Status& status) override;
  bool Stalled() const override { return pump_.Stalled(environment_.limits.write_timeout_nanos); }
  void Abandon() override { pump_.Abandon(); }
  void SendNow() override { pump_.Send(); }
  moe::v1::GenerateResponse NewMessage();

  ResponsePump<moe::v1::GenerateResponse> pump_;
  bool first_ = true;  // engine thread: the next message is the first one
};

class ScoreCall final : public EngineCall {
 public:
  ScoreCall(const CallEnvironment& environment, ResponseTransport<moe::v1::ScoreResponse>& transport)
      : EngineCall(environment, Method::kScore),
        pump_(transport, environment.clock, {.streaming = false, .send_later = [this] { SendLater(); }}) {}
  ResponsePump<moe::v1::ScoreResponse>& pump() { return pump_; }

 private:
  void Open() override { pump_.Open(); }
  PushResult Push(const TokenDelta&) override { return PushResult::kTaken; }  // scoring generates nothing
  void Complete(const FinishInfo& finish) override;
  void Fail(const absl::Status& status) override;
  bool Stalled() const override { return pump_.Stalled(environment_.limits.write_timeout_nanos); }
  void Abandon() override { pump_.Abandon(); }
  void SendNow() override { pump_.Send(); }

  ResponsePump<moe::v1::ScoreResponse> pump_;
};

}  // namespace moed
