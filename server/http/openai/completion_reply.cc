#include "server/http/openai/completion_reply.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

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

int64_t Characters(std::string_view utf8) { return static_cast<int64_t>(CountCharacters(utf8)); }

// Counts the characters of a text whose tokens come one after the other, as the text has them: a token that goes on with a
// character is where that is, and what is no UTF-8 is a U+FFFD.
class TextOffset {
 public:
  explicit TextOffset(int64_t characters = 0) : characters_(characters) {}

  int64_t characters() const { return characters_; }
  void Add(std::string_view token) {
    begun_ += token;
    std::string text;
    begun_.erase(0, AppendReplacingInvalid(begun_, text));
    characters_ += Characters(text);
  }

 private:
  int64_t characters_;
  std::string begun_;  // a character that is not whole
};

// What OpenAI's form says of tokens.
class TokenLists {
 public:
  // `has_logprob`: false of a token before which nothing is.
  void Add(const TokenLogprob& token, int64_t offset, bool has_logprob = true) {
    tokens_.push_back(TokenText(token.token()));
    logprobs_.push_back(has_logprob ? Json(token.logprob()) : Json(nullptr));
    Json top = Json::object();
    for (const TokenLogprob& other : token.top()) top[TokenText(other.token())] = other.logprob();
    if (!top.empty()) top[TokenText(token.token())] = token.logprob();  // also where it is none of the most likely
    tops_.push_back(token.top().empty() ? Json(nullptr) : std::move(top));
    offsets_.push_back(offset);
  }

  Json Take() && {
    if (tokens_.empty()) return nullptr;
    return {{"tokens", std::move(tokens_)},
            {"token_logprobs", std::move(logprobs_)},
            {"top_logprobs", std::move(tops_)},
            {"text_offset", std::move(offsets_)}};
  }

 private:
  Json tokens_ = Json::array(), logprobs_ = Json::array(), tops_ = Json::array(), offsets_ = Json::array();
};

const moe::v1::Finish* FinishOf(const GenerateResponse& message) { return message.has_finish() ? &message.finish() : nullptr; }

std::vector<std::string> EchoedTexts(const CompletionDraft& draft) {
  std::vector<std::string> texts;
  if (!draft.echo) return texts;
  for (const auto& prompt : draft.prompts) texts.push_back(prompt.text());
  return texts;
}

class CompletionWriter final : public AnswerWriter<GenerateResponse> {
 public:
  CompletionWriter(AnswerIdentity identity, const CompletionDraft& draft)
      : identity_(std::move(identity)),
        streams_(draft.stream),
        include_usage_(draft.include_usage),
        logprobs_(draft.response.logprobs()),
        echoed_(EchoedTexts(draft)),
        field_names_(CompletionFieldNames(draft)),
        prompts_(draft.prompts.size()),
        choices_(draft.prompts.size(), draft.choices),
        places_(choices_.count()) {}

  void Select(size_t choice) override { choices_.Select(choice); }

  std::string Events(const GenerateResponse& message) override {
    if (message.text().empty() && message.logprobs().empty() && !message.has_finish()) return "";
    Json chunk = AnswerObject(identity_, "text_completion");
    chunk["choices"] = Json::array({Choice(message)});
    AddSession(message.finish(), chunk);
    if (include_usage_) chunk["usage"] = nullptr;
    return Event(chunk);
  }

  std::string LastEvents() override {
    if (!include_usage_) return std::string(kLastEvent);
    Json chunk = AnswerObject(identity_, "text_completion");
    chunk["choices"] = Json::array();
    chunk["usage"] = UsageJson(choices_.usage());
    return StrCat(Event(chunk), kLastEvent);
  }

  std::string ErrorEvent(const grpc::Status& status) override { return Event(OpenAiErrorJson(ErrorOfChoice(status))); }
  grpc::Status Keep(const GenerateResponse& answer) override { return choices_.Keep(Choice(answer)); }
  size_t kept_bytes() const override { return choices_.kept_bytes(); }
  size_t request_bytes() const override {
    size_t bytes = 0;
    for (const std::string& text : echoed_) bytes += text.size();
    return bytes;
  }

  HttpReply Whole(const GenerateResponse& answer) override {
    const Json last = Choice(answer);
    Json json = AnswerObject(identity_, "text_completion");
    AddSession(answer.finish(), json);
    if (streams_) return WholeAsEvents(std::move(json), last);
    json["usage"] = UsageJson(choices_.usage());
    return {.body = choices_.Whole(json, last)};
  }

  HttpReply Error(const grpc::Status& status) override { return OpenAiError(ErrorOfChoice(status)); }

 private:
  // Of a choice: where its answer's text goes on.
  struct Place {
    bool begun = false;
    TextOffset offset;
  };

  // All choices in one event.
  HttpReply WholeAsEvents(Json chunk, const Json& last) {
    if (include_usage_) chunk["usage"] = nullptr;
    return {.content_type = kEventStream,
            .body = StrCat("data: ", choices_.Whole(chunk, last), "\n\n", LastEvents()),
            .headers = {{"cache-control", "no-store"}}};
  }

  // What is about a prompt names it, where there are several.
  ApiError ErrorOfChoice(const grpc::Status& status) const {
    const std::string prompt = prompts_ > 1 ? StrCat("prompt[", choices_.prompt(), "]") : "prompt";
    std::vector<FieldName> names = {{"text", prompt}, {"token_ids", prompt}, {"prompt", prompt}};
    names.insert(names.end(), field_names_.begin(), field_names_.end());
    return ErrorOf(status, names);
  }

  Json Choice(const GenerateResponse& message) {
    if (message.has_finish()) choices_.AddUsage(message.finish().usage());
    Place& place = places_[choices_.selected()];
    TokenLists logprobs;
    std::string text;
    if (!std::exchange(place.begun, true) && !echoed_.empty()) text = Echo(message, place.offset, logprobs);
    for (const TokenLogprob& token : message.logprobs()) {
      logprobs.Add(token, place.offset.characters());
      place.offset.Add(token.token());
    }
    Json choice = {{"index", choices_.selected()},
                   {"text", text + message.text()},
                   {"logprobs", std::move(logprobs).Take()},
                   {"finish_reason", FinishReasonJson(FinishOf(message))}};
    AddStopReason(FinishOf(message), choice);
    return choice;
  }

  // The prompt's text: as it was given or, of token ids, what they say. Tokens that were added before it stand at its begin.
  std::string Echo(const GenerateResponse& message, TextOffset& offset, TokenLists& logprobs) {
    std::string bytes, text;
    for (const TokenLogprob& token : message.prompt_logprobs()) bytes += token.token();
    if (AppendReplacingInvalid(bytes, text) < bytes.size()) text += kReplacementCharacter;
    const std::string& given = echoed_[choices_.prompt()];
    const int64_t added = !given.empty() && text.ends_with(given) ? Characters(text) - Characters(given) : 0;
    if (!given.empty()) text = given;
    TextOffset place;
    for (int i = 0; logprobs_ && i < message.prompt_logprobs_size(); ++i) {
      const TokenLogprob& token = message.prompt_logprobs(i);
      logprobs.Add(token, std::max<int64_t>(place.characters() - added, 0), i > 0);
      place.Add(token.token());
    }
    offset = TextOffset(Characters(text));
    return text;
  }

  const AnswerIdentity identity_;
  const bool streams_;
  const bool include_usage_;
  const bool logprobs_;
  const std::vector<std::string> echoed_;  // the prompts' texts, "" of token ids; empty: they are not wanted
  const std::vector<FieldName> field_names_;
  const size_t prompts_;
  Choices choices_;
  std::vector<Place> places_;
};

}  // namespace

std::unique_ptr<AnswerWriter<GenerateResponse>> MakeCompletionWriter(AnswerIdentity identity, const CompletionDraft& draft) {
  return std::make_unique<CompletionWriter>(std::move(identity), draft);
}

}  // namespace moed::http
