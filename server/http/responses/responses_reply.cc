#include "server/http/responses/responses_reply.h"

#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "server/http/openai/reply.h"
#include "server/http/responses/output.h"

namespace moed::http {
namespace {

using moe::v1::ChatResponse;
using moe::v1::Finish;
using Kind = OutputItem::Kind;

constexpr std::string_view kFailed = "failed";

// How events about the text of an item are called.
struct EventNames {
  std::string_view delta, done;
  std::string_view text;  // the member of `done` that has all of it
};
EventNames EventNamesOf(Kind kind) {
  switch (kind) {
    case Kind::kReasoning:
      return {"response.reasoning_text.delta", "response.reasoning_text.done", "text"};
    case Kind::kMessage:
      return {"response.output_text.delta", "response.output_text.done", "text"};
    case Kind::kCall:
      return {"response.function_call_arguments.delta", "response.function_call_arguments.done", "arguments"};
  }
  return {};
}

// Of an answer, and of its last item.
std::string_view StatusOf(const Finish& finish) {
  switch (finish.reason()) {
    case moe::v1::FINISH_REASON_STOP:
    case moe::v1::FINISH_REASON_STOP_STRING:
    case moe::v1::FINISH_REASON_TOOL_CALLS:
      return kCompleted;
    default:
      return kIncomplete;
  }
}

Json ResponseUsage(const moe::v1::Usage& usage) {
  return {{"input_tokens", usage.prompt_tokens()},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens()}, {"cache_write_tokens", 0}}},
          {"output_tokens", usage.completion_tokens()},
          {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens()}}},
          {"total_tokens", usage.prompt_tokens() + usage.completion_tokens()}};
}

// OpenAI's. Clients send a request again after most of them, but not where it is the request that is wrong, or that was
// cancelled.
std::string_view ResponseErrorCode(const ApiError& error) {
  constexpr int kBadRequest = 400, kTooManyRequests = 429, kCancelled = 499;
  if (error.beyond_context) return "context_length_exceeded";
  if (error.status == kBadRequest || error.status == kCancelled) return "invalid_prompt";
  return error.status == kTooManyRequests ? "rate_limit_exceeded" : "server_error";
}

// Of an answer that failed.
Json ResponseErrorJson(const ApiError& error) {
  return {{"code", ResponseErrorCode(error)}, {"message", OpenAiErrorJson(error)["error"]["message"]}};
}

class ResponsesWriter final : public AnswerWriter<ChatResponse> {
 public:
  ResponsesWriter(AnswerIdentity identity, ResponsesDraft& draft)
      : identity_(std::move(identity)),
        echo_(std::move(draft.echo)),
        input_(std::move(draft.input)),
        wants_logprobs_(draft.response.logprobs()) {}

  size_t request_bytes() const override { return echo_.size(); }

  std::string Events(const ChatResponse& message) override {
    std::string events = begun_ ? "" : Ping();
    if (wants_logprobs_) AddLogprobs(message);
    if (!message.reasoning().empty()) events += Write({.kind = Kind::kReasoning}, -1, message.reasoning());
    if (!message.text().empty()) events += Write({.kind = Kind::kMessage}, -1, message.text());
    for (const auto& call : message.tool_calls()) {
      events += Write({.kind = Kind::kCall, .call_id = call.id(), .name = call.name()}, call.index(), call.arguments());
    }
    if (message.has_finish()) finish_ = message.finish();
    return events;
  }

  // Some clients give up a stream without events, whatever comments it has. The first ping begins the response.
  std::string Ping() override {
    std::string events;
    if (!std::exchange(begun_, true)) events = ResponseEvent("response.created", Response(kInProgress, nullptr));
    return events + ResponseEvent("response.in_progress", Response(kInProgress, nullptr));
  }

  std::string LastEvents() override {
    const std::string_view status = StatusOf(finish_);
    std::string events;
    if (number_ == 0) events = Open({.kind = Kind::kMessage}, -1);
    events += Close(status);
    return events + ResponseEvent(StrCat("response.", status), Response(status, &finish_));
  }

  // Both, since some clients look at the one and some at the other.
  std::string ErrorEvent(const grpc::Status& status) override {
    const ApiError error = ErrorOfCall(status);
    Json told = OpenAiErrorJson(error)["error"];
    std::string events = Event("error", {{"code", told["code"]}, {"message", told["message"]}, {"param", told["param"]}});
    if (open_) output_.push_back(OutputItemJson(item_, kIncomplete));
    Json response = Response(kFailed, nullptr);
    response["error"] = ResponseErrorJson(error);
    return events + ResponseEvent("response.failed", response);
  }

  HttpReply Whole(const ChatResponse& answer) override {
    std::vector<OutputItem> items;
    if (!answer.reasoning().empty()) items.push_back({.kind = Kind::kReasoning, .text = answer.reasoning()});
    if (!answer.text().empty() || (items.empty() && answer.tool_calls().empty()))
      items.push_back({.kind = Kind::kMessage, .text = answer.text(), .logprobs = TokensJson(answer.logprobs())});
    for (const auto& call : answer.tool_calls())
      items.push_back({.kind = Kind::kCall, .text = call.arguments(), .call_id = call.id(), .name = call.name()});
    for (OutputItem& item : items) {
      item.id = OutputItemId(item.kind, identity_.id, output_.size());
      const bool last = &item == &items.back();
      output_.push_back(OutputItemJson(item, last ? StatusOf(answer.finish()) : kCompleted));
    }
    return {.body = TextOf(Response(StatusOf(answer.finish()), &answer.finish()))};
  }

  HttpReply Error(const grpc::Status& status) override { return OpenAiError(ErrorOfCall(status)); }

 private:
  ApiError ErrorOfCall(const grpc::Status& status) const {
    return ErrorOf(status, ResponsesFieldNames(), [this](std::string_view path) { return input_.PlaceOf(path); });
  }

  // With the items that have ended. `finish`: null where the answer has not.
  Json Response(std::string_view status, const Finish* finish) const {
    Json response = {{"id", identity_.id},
                     {"object", "response"},
                     {"created_at", identity_.created_unix_seconds},
                     {"completed_at", status == kCompleted ? Json(std::time(nullptr)) : Json(nullptr)},
                     {"status", status},
                     {"error", nullptr},
                     {"incomplete_details", nullptr},
                     {"model", identity_.model},
                     {"output", output_},
                     {"usage", finish == nullptr ? Json(nullptr) : ResponseUsage(finish->usage())}};
    if (status == kIncomplete) response["incomplete_details"] = {{"reason", "max_output_tokens"}};
    AddStopReason(finish, response);
    if (finish != nullptr) AddSession(*finish, response);
    return response;
  }

  // With what is repeated of the request.
  std::string TextOf(const Json& response) const {
    std::string text = Dumped(response);
    text.pop_back();
    return StrCat(text, ",", echo_, "}");
  }

  std::string ResponseEvent(std::string_view type, const Json& response) {
    return StrCat("event: ", type, "\ndata: {\"type\":\"", type, "\",\"sequence_number\":", sequence_++,
                  ",\"response\":", TextOf(response), "}\n\n");
  }

  std::string Event(std::string_view type, const Json& members) {
    Json json = {{"type", type}, {"sequence_number", sequence_++}};
    json.update(members);
    return StrCat("event: ", type, "\ndata: ", Dumped(json), "\n\n");
  }

  // About the item that is open.
  std::string ItemEvent(std::string_view type, const Json& members) {
    Json json = {{"item_id", item_.id}, {"output_index", number_ - 1}};
    if (item_.kind != Kind::kCall) json["content_index"] = 0;
    json.update(members);
    return Event(type, json);
  }
  std::string WholeItemEvent(std::string_view type, std::string_view status) {
    return Event(type, {{"output_index", number_ - 1}, {"item", OutputItemJson(item_, status)}});
  }

  // What follows of an item. One ends where another begins, and a call where the next one does.
  std::string Write(OutputItem item, int call, const std::string& text) {
    const bool goes_on = open_ && item_.kind == item.kind && call_ == call;
    std::string events;
    if (!goes_on) {
      events = Close(kCompleted);
      events += Open(std::move(item), call);
    }
    if (text.empty()) return events;
    item_.text += text;
    Json members = {{"delta", text}};
    if (item_.kind == Kind::kMessage) members["logprobs"] = std::exchange(logprobs_, Json::array());
    return events + ItemEvent(EventNamesOf(item_.kind).delta, members);
  }

  std::string Open(OutputItem item, int call) {
    item_ = std::move(item);
    item_.id = OutputItemId(item_.kind, identity_.id, number_++);
    call_ = call;
    open_ = true;
    std::string events = WholeItemEvent("response.output_item.added", kInProgress);
    if (item_.kind != Kind::kCall) events += ItemEvent("response.content_part.added", {{"part", OutputPartJson(item_)}});
    return events;
  }

  std::string Close(std::string_view status) {
    if (!std::exchange(open_, false)) return "";
    const EventNames names = EventNamesOf(item_.kind);
    Json members = {{names.text, item_.text}};
    if (item_.kind == Kind::kMessage) members["logprobs"] = Json::array();
    if (item_.kind == Kind::kCall) members["name"] = item_.name;
    std::string events = ItemEvent(names.done, members);
    if (item_.kind != Kind::kCall) events += ItemEvent("response.content_part.done", {{"part", OutputPartJson(item_)}});
    output_.push_back(OutputItemJson(item_, status));
    return events + WholeItemEvent("response.output_item.done", status);
  }

  // They come with the text of their tokens, and are not kept: alternatives take many times what the text does.
  void AddLogprobs(const ChatResponse& message) {
    if (!message.reasoning().empty() || !message.tool_calls().empty()) logprobs_ = Json::array();
    for (Json& token : TokensJson(message.logprobs())) logprobs_.push_back(std::move(token));
  }

  const AnswerIdentity identity_;
  const std::string echo_;
  const Input input_;  // without its messages
  const bool wants_logprobs_;
  bool begun_ = false;
  int64_t sequence_ = 0;  // of the next event
  Finish finish_;
  Json output_ = Json::array();  // the items that have ended
  size_t number_ = 0;            // of items that were begun
  bool open_ = false;
  OutputItem item_;                // the last of them
  int call_ = -1;                  // of it: which of the answer's
  Json logprobs_ = Json::array();  // whose text has not come
};

}  // namespace

std::unique_ptr<AnswerWriter<ChatResponse>> MakeResponsesWriter(AnswerIdentity identity, ResponsesDraft& draft) {
  return std::make_unique<ResponsesWriter>(std::move(identity), draft);
}

}  // namespace moed::http
