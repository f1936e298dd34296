#include "core/chat/answer/marked_parser.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/chat/answer/markers.h"

namespace moed::chat {
namespace {

class MarkedParser final : public AnswerParser {
 public:
  MarkedParser(const MarkedSyntax& syntax, const AnswerOptions& options)
      : syntax_(syntax), tools_(options.tools), reasoning_(options.reasoning_open), scanner_({}, true) {
    skip_space_ = reasoning_;
    SetMarkers();
  }
  void Add(std::string_view text, std::vector<AnswerPart>& parts) override;
  void End(std::vector<AnswerPart>& parts) override;
  void CutOff(std::vector<AnswerPart>& parts) override {
    scanner_.DropBegun();
    End(parts);
  }

 private:
  void Put(char c, AnswerWriter& out);
  void PutInCall(char c, AnswerWriter& out);
  void Plain(std::string_view text, AnswerWriter& out);
  void Found(int marker, AnswerWriter& out);
  bool EndsReasoning(AnswerWriter& out);
  void NoCall(AnswerWriter& out);
  void SetMarkers();

  const MarkedSyntax& syntax_;
  const ToolSchemas tools_;
  int calls_ = 0;
  bool reasoning_;
  bool unclosed_ = false;  // a call was the reasoning's end
  bool first_ = true;      // of the reasoning or of the text nothing has come
  bool skip_space_;        // that follows a marker
  MarkerScanner scanner_;
  struct Meaning {
    enum class Kind : uint8_t { kReasoning, kOpen, kClose, kCall };
    Kind kind;
    const CallMarker* call = nullptr;
  };
  std::vector<Meaning> meanings_;  // of the scanner's markers
  std::string closed_;             // an envelope's end, which is text if text follows

  std::unique_ptr<CallReader> reader_;  // of the call that is open
  int calls_before_ = 0;                // it was opened
  std::string held_;                    // what it has not taken
  size_t marker_bytes_ = 0;             // of held_: the marker that opened it
  std::string again_;                   // what comes before the next byte, reversed
};

void MarkedParser::Add(std::string_view text, std::vector<AnswerPart>& parts) {
  AnswerWriter out(parts, calls_);
  size_t at = 0;
  while (at < text.size() || !again_.empty()) {
    if (again_.empty()) {
      Put(text[at++], out);
      continue;
    }
    const char c = again_.back();
    again_.pop_back();
    Put(c, out);
  }
}

void MarkedParser::Put(char c, AnswerWriter& out) {
  if (reader_ != nullptr) return PutInCall(c, out);
  if (skip_space_ && IsMarkerSpace(c)) return;
  skip_space_ = false;
  std::string plain;
  const int marker = scanner_.Put(c, plain);
  Plain(plain, out);
  if (marker == MarkerScanner::kNone) return;
  Found(marker, out);
  calls_before_ = out.calls();
}

void MarkedParser::Plain(std::string_view text, AnswerWriter& out) {
  if (text.empty()) return;
  if (!closed_.empty()) out.Text(std::exchange(closed_, {}));
  reasoning_ ? out.Reasoning(text) : out.Text(text);
  if (std::exchange(first_, false)) SetMarkers();
}

void MarkedParser::Found(int marker, AnswerWriter& out) {
  const Meaning meaning = meanings_[marker];
  switch (meaning.kind) {
    case Meaning::Kind::kCall:
      reader_ = meaning.call->make(tools_);
      held_ = scanner_.found();
      marker_bytes_ = held_.size();
      return;
    case Meaning::Kind::kClose:
      Plain(std::exchange(closed_, {}), out);
      closed_ = scanner_.found();
      return;
    case Meaning::Kind::kReasoning:
      reasoning_ = !reasoning_ || marker != 0;
      first_ = true;
      SetMarkers();
      break;
    case Meaning::Kind::kOpen:
      break;
  }
  skip_space_ = true;
}

void MarkedParser::PutInCall(char c, AnswerWriter& out) {
  held_ += c;
  CallState state = reader_->Put(c, out);
  if (reasoning_ && out.calls() != calls_before_ && !EndsReasoning(out)) state = CallState::kMalformed;
  if (state == CallState::kHeld && held_.size() > kMostHeldBytes) state = CallState::kMalformed;
  if (state == CallState::kHeld) return;
  if (state == CallState::kMalformed) return NoCall(out);
  held_.clear();
  closed_.clear();
  marker_bytes_ = 0;
  if (state == CallState::kTaken) return;
  reader_.reset();
  skip_space_ = true;
}

// The call has begun with the byte before. One of a tool that there is none of is an example that the reasoning speaks of.
bool MarkedParser::EndsReasoning(AnswerWriter& out) {
  if (!tools_.Has(out.name())) {
    out.TakeBack();
    return false;
  }
  reasoning_ = first_ = false;
  unclosed_ = true;
  SetMarkers();
  return true;
}

// The marker is text; what follows it may hold another one.
void MarkedParser::NoCall(AnswerWriter& out) {
  reader_.reset();
  Plain(std::string_view(held_).substr(0, marker_bytes_), out);
  again_.append(held_.rbegin(), held_.rend() - static_cast<std::ptrdiff_t>(marker_bytes_));
  held_.clear();
}

void MarkedParser::End(std::vector<AnswerPart>& parts) {
  AnswerWriter out(parts, calls_);
  if (reader_ == nullptr) {
    const std::string rest = scanner_.Take();
    if (closed_.empty() || !std::all_of(rest.begin(), rest.end(), IsMarkerSpace)) Plain(rest, out);
  } else if (out.calls() != calls_before_) {
    reader_->End(out);
  } else if (reader_->MayBeText()) {
    Plain(held_, out);
  }
}

// The reasoning's end is marker 0 within it, its begin outside.
void MarkedParser::SetMarkers() {
  std::vector<std::string_view> markers;
  meanings_.clear();
  const auto add = [&](std::string_view marker, Meaning meaning) {
    if (marker.empty()) return;
    markers.push_back(marker);
    meanings_.push_back(meaning);
  };
  if (reasoning_) add(syntax_.reasoning_close, {Meaning::Kind::kReasoning});
  if (first_) add(syntax_.reasoning_open, {Meaning::Kind::kReasoning});
  for (const CallMarker& call : syntax_.calls) {
    if (reasoning_ && !syntax_.calls_end_reasoning) break;
    if (!tools_.empty() && (first_ || !call.before_text)) add(call.marker, {Meaning::Kind::kCall, &call});
  }
  if (unclosed_) add(syntax_.reasoning_close, {Meaning::Kind::kOpen});  // that comes yet
  for (const Envelope& envelope : syntax_.envelopes) {
    if (reasoning_) break;
    if (first_) add(envelope.open, {Meaning::Kind::kOpen});
    add(envelope.close, {Meaning::Kind::kClose});
  }
  scanner_.SetMarkers(std::move(markers));
}

}  // namespace

std::unique_ptr<AnswerParser> MakeMarkedParser(const MarkedSyntax& syntax, const AnswerOptions& options) {
  return std::make_unique<MarkedParser>(syntax, options);
}

}  // namespace moed::chat
