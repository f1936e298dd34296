// Messages of clients, as bytes: translated, then held against the engine's limits.
#include "core/engine/request_check.h"
#include "server/rpc/chat_translation.h"
#include "server/rpc/request_translation.h"
#include "server/wire/received_message.h"
#include "tests/fuzz/foreign_bytes.h"

using namespace moed;

namespace {

constexpr EngineLimits kLimits{
    .max_context = 256, .max_new_tokens = 128, .max_running = 4, .queue_capacity = 4, .vocabulary = 1000};

void Check(absl::StatusOr<PendingRequest> request) {
  if (!request.ok()) return;
  if (request->is_text || request->conversation) request->engine.prompt = {TokenId(1)};
  if (!CheckRequest(request->engine, kLimits).ok()) return;
  for (const TokenId token : request->engine.prompt) MOED_CHECK(token.value() >= 0 && token.value() < kLimits.vocabulary);
  (void)CheckSession(request->engine, kLimits, 0);
}

const LoadedModel& Model() {
  static const chat::ModelTemplate chat_template = *chat::ModelTemplate::Parse("{{ messages }}{{ tools }}", "");
  static const LoadedModel model = [] {
    LoadedModel made;
    made.chat = &chat_template;
    made.answer_format = &chat::AnswerFormats().back();
    return made;
  }();
  return model;
}

constexpr size_t kMostStopStrings = 3, kMostStopStringBytes = 20, kMostTokens = 5;

const MessageLimits& Limits() {
  static const MessageLimits limits(
      *moe::v1::GenerateRequest::descriptor(),
      {{.path = "stopping.stop_strings", .entries = kMostStopStrings, .bytes = kMostStopStringBytes},
       {.path = "token_ids.ids", .entries = kMostTokens}},
      /*unknown_bytes=*/1000);
  return limits;
}

// What passes the limits keeps them once it is parsed.
void CheckLimits(const uint8_t* data, size_t size, const moe::v1::GenerateRequest* parsed) {
  const grpc::Slice slice(data, size);
  const grpc::ByteBuffer bytes(&slice, 1);
  (void)PeekString(bytes, moe::v1::GenerateRequest::kRequestIdFieldNumber, 128);
  if (!Limits().Check(bytes).ok() || parsed == nullptr) return;
  MOED_CHECK(static_cast<size_t>(parsed->stopping().stop_strings_size()) <= kMostStopStrings);
  for (const std::string& text : parsed->stopping().stop_strings()) MOED_CHECK(text.size() <= kMostStopStringBytes);
  MOED_CHECK(static_cast<size_t>(parsed->token_ids().ids_size()) <= kMostTokens);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  moe::v1::GenerateRequest generate;
  const bool parsed = generate.ParseFromArray(data, static_cast<int>(size));
  CheckLimits(data, size, parsed ? &generate : nullptr);
  if (parsed) Check(TranslateGenerate(generate));
  moe::v1::ChatRequest chat;
  if (chat.ParseFromArray(data, static_cast<int>(size))) Check(TranslateChat(chat, Model(), {.conversation_bytes = 1 << 16}));
  moe::v1::ScoreRequest score;
  if (score.ParseFromArray(data, static_cast<int>(size))) Check(TranslateScore(score));
  return 0;
}
