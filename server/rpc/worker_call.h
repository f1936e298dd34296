// Calls that a worker answers by itself: the tokenizer's, and those about sessions and prompts.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "moe/v1/inference.pb.h"
#include "server/rpc/call.h"
#include "server/rpc/encoded.h"
#include "server/rpc/response_pump.h"

namespace moed {

class WorkerCall final : public Call {
 public:
  WorkerCall(const CallEnvironment& environment, Method method, ResponseTransport<Encoded>& transport)
      : Call(environment, method, WorkKind::kTokenizer),
        pump_(transport, environment.clock, {.streaming = false, .send_later = [this] { SendLater(); }}) {}
  ResponsePump<Encoded>& pump() { return pump_; }

  // arrival.read answers the request. INVALID_ARGUMENT names a field.
  void Start(Arrival<Encoded> arrival);

 private:
  void Finish(absl::StatusOr<Encoded> answer);
  void Fail(const absl::Status& status) override;
  bool Stalled() const override { return pump_.Stalled(limits().write_timeout_nanos); }
  void Abandon() override { pump_.Abandon(); }
  void SendNow() override { pump_.Send(); }
  void StopWork(const absl::Status&) override {}  // it ends soon

  ResponsePump<Encoded> pump_;
};

// INVALID_ARGUMENT names the field.
absl::StatusOr<Encoded> Tokenize(const moe::v1::TokenizeRequest& request, const LoadedModel& model, const RequestLimits& limits);
absl::StatusOr<Encoded> Detokenize(const moe::v1::DetokenizeRequest& request, const LoadedModel& model,
                                   const RequestLimits& limits);
// As Chat begins, without what of the answer is compiled. It may end early where `stopping`.
absl::StatusOr<Encoded> CountTokens(moe::v1::ChatRequest request, const LoadedModel& model, const RequestLimits& limits,
                                    const std::function<bool()>& stopping);
// NOT_FOUND, ABORTED as Engine::DeleteSession says.
absl::StatusOr<Encoded> DeleteSession(const moe::v1::DeleteSessionRequest& request, const LoadedModel& model,
                                      const RequestLimits& limits);

}  // namespace moed
