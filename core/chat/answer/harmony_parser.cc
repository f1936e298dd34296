#include "core/chat/answer/harmony_parser.h"

#include <string>
#include <utility>

#include "core/chat/answer/answer_writer.h"
#include "core/chat/answer/call_reader.h"
#include "core/chat/answer/json_scanner.h"
#include "core/chat/answer/markers.h"
#include "core/chat/answer/tool_schemas.h"

namespace moed::chat {
namespace {

constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kConstrain = "<|constrain|>";
constexpr std::string_view kTo = "to=";
constexpr size_t kMostHeaderBytes = 1024;

class HarmonyParser final : public AnswerParser {
 public:
  explicit HarmonyParser(const AnswerOptions& options)
      : tools_(options.tools), ends_({"<|end|>", "<|call|>", "<|return|>", kStart, kChannel}) {}
  void Add(std::string_view text, std::vector<AnswerPart>& parts) override {
    AnswerWriter out(parts, calls_);
    for (const char c : text) Put(c, out);
  }
  void End(std::vector<AnswerPart>& parts) override {
    AnswerWriter out(parts, calls_);
    const std::string begun = ends_.Take();
    if (at_ == At::kBeforeArguments && begun.empty()) CallWithoutBody(out);
    if (at_ == At::kBeforeHeader) Plain(held_, out);
    Plain(begun, out);
  }
  void CutOff(std::vector<AnswerPart>& parts) override {
    const size_t begin = held_.find_first_not_of(" \t\r\n");
    if (begin != std::string::npos && held_[begin] == '<') held_.clear();
    ends_.DropBegun();
    AnswerWriter out(parts, calls_);
    if (at_ == At::kBeforeHeader) Plain(held_, out);
    Plain(ends_.Take(), out);
  }

 private:
  enum class At : uint8_t {
    kBeforeHeader,  // a header or, from models that do without, the text
    kHeader,
    kBody,
    kBeforeArguments,
    kArguments,
  };

  void Put(char c, AnswerWriter& out);
  void BeforeHeader(char c, AnswerWriter& out);
  void BeginHeader(std::string_view marker);
  void Header(char c, AnswerWriter& out);
  void EndHeader();
  void Body(char c, AnswerWriter& out);
  void EndBody();
  void BeforeArguments(char c, AnswerWriter& out);
  void BeginCall(AnswerWriter& out);
  // The message has ended: where it calls a known tool, that has no arguments.
  void CallWithoutBody(AnswerWriter& out);
  void Arguments(char c, AnswerWriter& out);
  // What is held was no header: it is text, and so is what follows.
  void NoMessage(AnswerWriter& out);
  void Plain(std::string_view text, AnswerWriter& out) { reasoning_ ? out.Reasoning(text) : out.Text(text); }

  const ToolSchemas tools_;
  int calls_ = 0;
  At at_ = At::kBeforeHeader;
  Choice first_ = Beginnings();
  std::string held_;        // a header, or what follows it of a call that has not begun
  bool reasoning_ = false;  // the body's kind
  bool after_call_ = false;
  std::string recipient_;
  MarkerScanner ends_;  // of a body
  JsonScanner scanner_;

  static Choice Beginnings() { return Choice({kStart, kChannel, kMessage, kConstrain, kTo}); }
};

void HarmonyParser::Put(char c, AnswerWriter& out) {
  switch (at_) {
    case At::kBeforeHeader:
      return BeforeHeader(c, out);
    case At::kHeader:
      return Header(c, out);
    case At::kBody:
      return Body(c, out);
    case At::kBeforeArguments:
      return BeforeArguments(c, out);
    default:
      return Arguments(c, out);
  }
}

void HarmonyParser::BeforeHeader(char c, AnswerWriter& out) {
  held_ += c;
  const int choice = first_.Put(c);
  if (choice >= 0) at_ = At::kHeader;
  if (choice >= 0 && held_.size() >= kMessage.size() && held_.substr(held_.size() - kMessage.size()) == kMessage)
    return EndHeader();
  if (choice == Choice::kNone || held_.size() > kMostHeaderBytes) NoMessage(out);
}

void HarmonyParser::BeginHeader(std::string_view marker) {
  held_ = marker;
  at_ = At::kHeader;
}

void HarmonyParser::Header(char c, AnswerWriter& out) {
  held_ += c;
  if (c == '\n' || held_.size() > kMostHeaderBytes) return NoMessage(out);
  if (c == '>' && held_.size() >= kMessage.size() && held_.substr(held_.size() - kMessage.size()) == kMessage) EndHeader();
}

void HarmonyParser::EndHeader() {
  const auto word_after = [this](std::string_view marker) {
    const size_t at = held_.find(marker);
    if (at == std::string::npos) return std::string();
    const size_t begin = at + marker.size();
    size_t end = begin;
    while (end < held_.size() && IsNameCharacter(held_[end])) ++end;
    return held_.substr(begin, end - begin);
  };
  reasoning_ = word_after(kChannel) == "analysis";
  recipient_ = word_after(kTo);
  after_call_ = false;
  constexpr std::string_view kFunctions = "functions.";
  if (recipient_.compare(0, kFunctions.size(), kFunctions) == 0) recipient_.erase(0, kFunctions.size());
  at_ = !tools_.empty() && !recipient_.empty() ? At::kBeforeArguments : At::kBody;
  held_.clear();
}

void HarmonyParser::Body(char c, AnswerWriter& out) {
  std::string plain;
  const int end = ends_.Put(c, plain);
  if (after_call_ && plain.find_first_not_of(" \t\r\n") == std::string::npos) plain.clear();
  Plain(plain, out);
  if (end != MarkerScanner::kNone) EndBody();
}

void HarmonyParser::EndBody() {
  const std::string marker = ends_.found();
  reasoning_ = after_call_ = false;
  if (marker == kStart || marker == kChannel) return BeginHeader(marker);
  at_ = At::kBeforeHeader;
  first_ = Beginnings();
}

void HarmonyParser::BeforeArguments(char c, AnswerWriter& out) {
  if (ends_.Put(c, held_) != MarkerScanner::kNone) {
    CallWithoutBody(out);
    return EndBody();
  }
  const size_t begin = held_.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos && held_.size() <= kMostHeaderBytes) return;
  if (begin != std::string::npos && held_[begin] == '{') {
    BeginCall(out);
    return Arguments(c, out);
  }
  reasoning_ = false;
  at_ = At::kBody;
  out.Text(std::exchange(held_, {}));
}

void HarmonyParser::BeginCall(AnswerWriter& out) {
  held_.clear();
  out.BeginCall(recipient_, "");
  scanner_ = JsonScanner();
  at_ = At::kArguments;
}

void HarmonyParser::CallWithoutBody(AnswerWriter& out) {
  if (tools_.Has(recipient_)) {
    BeginCall(out);
    out.Arguments("{}");
  }
  held_.clear();
}

void HarmonyParser::Arguments(char c, AnswerWriter& out) {
  const JsonScanner::State state = scanner_.Put(c);
  if (state != JsonScanner::State::kMalformed) out.Arguments({&c, 1});
  if (state == JsonScanner::State::kMore) return;
  at_ = At::kBody;
  reasoning_ = false;
  after_call_ = state == JsonScanner::State::kDone;
  if (!after_call_) Body(c, out);
}

void HarmonyParser::NoMessage(AnswerWriter& out) {
  reasoning_ = false;
  at_ = At::kBody;
  // The last byte may begin the marker that ends this text.
  const char last = held_.back();
  held_.pop_back();
  out.Text(std::exchange(held_, {}));
  Body(last, out);
}

}  // namespace

std::unique_ptr<AnswerParser> MakeHarmonyParser(const AnswerOptions& options) { return std::make_unique<HarmonyParser>(options); }

}  // namespace moed::chat
