#include "server/http/openai/completion_reply.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/base/utf8.h"
#include "server/http/openai/completion_request.h"

namespace moed::http {
namespace {

using moe::v1::GenerateResponse;
using moe::v1::TokenLogprob;

// A token's text; one that is not whole UTF-8 as OpenAI writes it: "bytes:\xe2\x82".
std::string TokenText(const std::string& bytes) {
  if (IsValidUtf8(bytes)) return bytes;
  std::string text = "bytes:";
  for (const unsigned char c : bytes) text += absl::StrFormat("\\x%02x", c);
  return text;
}

int64_t Characters(std::string_view utf8) {
  return std::ranges::count_if(utf8, [](unsigned char c) { return (c & 0xc0) != 0x80; });
}

const moe::v1::Finish* FinishOf(const GenerateResponse& message) { return message.has_finish() ? &message.finish() : nullptr; }

class CompletionWriter final : public AnswerWriter<GenerateResponse> {
 public:
  CompletionWriter(AnswerIdentity identity, bool include_usage) : identity_(std::move(identity)), include_usage_(include_usage) {}

  std::string Events(const GenerateResponse& message) override {
    if (message.has_finish()) usage_ = message.finish().usage();
    if (message.text().empty() && message.logprobs().empty() && !message.has_finish()) return "";
    Json chunk = Object(message);
    if (include_usage_) chunk["usage"] = nullptr;
    return Event(chunk);
  }

  std::string LastEvents() override {
    if (!include_usage_) return std::string(kLastEvent);
    Json chunk = AnswerObject(identity_, "text_completion");
    chunk["choices"] = Json::array();
    chunk["usage"] = UsageJson(usage_);
    return StrCat(Event(chunk), kLastEvent);
  }

  std::string ErrorEvent(const grpc::Status& status) override {
    return Event(OpenAiErrorJson(ErrorOf(status, CompletionFieldNames())));
  }

  HttpReply Whole(const GenerateResponse& answer) override {
    Json json = Object(answer);
    json["usage"] = UsageJson(answer.finish().usage());
    return {.body = Dumped(json)};
  }

  HttpReply Error(const grpc::Status& status) override { return OpenAiError(ErrorOf(status, CompletionFieldNames())); }

 private:
  Json Object(const GenerateResponse& message) {
    Json json = AnswerObject(identity_, "text_completion");
    json["choices"] = Json::array({{{"index", 0},
                                    {"text", message.text()},
                                    {"logprobs", Logprobs(message)},
                                    {"finish_reason", FinishReasonJson(FinishOf(message))}}});
    AddStopReason(FinishOf(message), json["choices"][0]);
    AddSession(message.finish(), json);
    return json;
  }

  Json Logprobs(const GenerateResponse& message) {
    if (message.logprobs().empty()) return nullptr;
    Json tokens, logprobs, tops, offsets;
    for (const TokenLogprob& token : message.logprobs()) {
      tokens.push_back(TokenText(token.token()));
      logprobs.push_back(token.logprob());
      Json top = Json::object();
      for (const TokenLogprob& other : token.top()) top[TokenText(other.token())] = other.logprob();
      if (!top.empty()) top[TokenText(token.token())] = token.logprob();  // also where it is none of the most likely
      tops.push_back(token.top().empty() ? Json(nullptr) : top);
      offsets.push_back(offset_);
      offset_ += Characters(token.token());
    }
    return {{"tokens", tokens}, {"token_logprobs", logprobs}, {"top_logprobs", tops}, {"text_offset", offsets}};
  }

  const AnswerIdentity identity_;
  const bool include_usage_;
  moe::v1::Usage usage_;
  int64_t offset_ = 0;  // characters of the tokens so far
};

}  // namespace

std::unique_ptr<AnswerWriter<GenerateResponse>> MakeCompletionWriter(AnswerIdentity identity, const AnswerOptions& options) {
  return std::make_unique<CompletionWriter>(std::move(identity), options.include_usage);
}

}  // namespace moed::http
