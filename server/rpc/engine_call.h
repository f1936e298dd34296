// One call to the engine from arrival to its end, transport aside: prompt work, admission, tokens.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/byte_share.h"
#include "core/engine/engine.h"
#include "server/rpc/call.h"
#include "server/rpc/request_translation.h"
#include "server/rpc/response_pump.h"

namespace moed {

// Held by the engine, too, until OnFinish. Thread-safe.
class EngineCall : public Call, public RequestObserver {
 public:
  // The engine's name for the request is arrival.id or, where that is empty, made up.
  void Start(Arrival<PendingRequest> arrival);

  void OnStarted(int prompt_tokens, int cached_tokens) override;
  void OnTokens(TokenDelta delta) override;
  void OnFinish(const FinishInfo& finish) override;

 protected:
  EngineCall(const CallEnvironment& environment, Method method) : Call(environment, method, WorkKind::kPrompt) {}

  // Towards the pump of the message type at hand.
  virtual void Open() = 0;
  virtual PushResult Push(TokenDelta delta) = 0;
  virtual void Complete(const FinishInfo& finish) = 0;  // status OK
  // Of a conversation, before it is submitted.
  virtual void TakeParser(std::unique_ptr<chat::AnswerParser>, bool /*skip_special_tokens*/) {}
  // INVALID_ARGUMENT where the answer cannot be sent, however it comes out.
  virtual absl::Status CheckAnswer(const EngineRequest&) const { return absl::OkStatus(); }

  // Constant once submitted.
  std::vector<TokenId> prompt_;  // when the client wants it back, or what it is worth
  bool wants_prompt_tokens_ = false;
  bool wants_prompt_logprobs_ = false;
  bool wants_logprobs_ = false;
  bool generates_ = true;  // an answer; else a text is scored
  int prompt_tokens_ = 0;  // engine thread
  int cached_tokens_ = 0;

 private:
  // On a worker: Admit, then Announce when it was admitted.
  bool Admit(absl::StatusOr<PendingRequest> request);
  void Announce();
  // Of a conversation: memory for the names in its tools, and its text.
  absl::Status HoldTools(const PendingRequest::Conversation& conversation);
  absl::Status Render(PendingRequest& request);
  absl::Status Tokenize(PendingRequest& request);
  absl::Status TokenizeTarget(PendingRequest& request);
  absl::StatusOr<std::vector<TokenId>> Encode(const char* field, const std::string& text, EncodeOptions options) const;
  // Makes the engine know what the answer must be.
  absl::Status CompileFormat(PendingRequest& request);
  void StopWork(const absl::Status& status) override;
  void Deliver(TokenDelta delta);
  void Finished(const FinishInfo& finish);

  ByteShare::Held tool_schemas_;              // of what a parser knows, which goes before
  std::optional<int64_t> last_tokens_nanos_;  // engine thread
  absl::Mutex engine_mutex_;
  std::optional<RequestId> engine_id_ ABSL_GUARDED_BY(engine_mutex_);
};

}  // namespace moed
