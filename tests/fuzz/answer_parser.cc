// The first byte chooses a format, the second where the answer is cut: whatever it is, its parts are whole UTF-8, in its order,
// none of them twice, and the same however it is cut.
#include "core/base/utf8.h"
#include "core/chat/answer/answer_format.h"
#include "core/chat/json.h"
#include "tests/fuzz/foreign_bytes.h"

using namespace moed;
using chat::AnswerPart;

namespace {

const chat::Value& Tools() {
  static const auto* const kTools = new chat::Value(*chat::ValueFromJson(
      R"([{"name": "f", "parameters": {"properties": {"n": {"type": "number"}, "o": {"type": ["object", "null"]}}}}])"));
  return *kTools;
}

std::vector<AnswerPart> Parsed(const chat::AnswerFormat& format, bool open, std::string_view answer, size_t cut) {
  const auto parser = format.make({open, Tools()});
  std::vector<AnswerPart> parts;
  parser->Add(answer.substr(0, cut), parts);
  parser->Add(answer.substr(cut), parts);
  parser->End(parts);
  return parts;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto formats = chat::AnswerFormats();
  const chat::AnswerFormat& format = formats[(data[0] >> 1) % formats.size()];
  const bool open = (data[0] & 1) != 0 && !format.reasoning_open.empty();
  const std::string_view answer = fuzz::Text(data + 2, size - 2);
  const auto parts = Parsed(format, open, answer, answer.size());
  const auto again = Parsed(format, open, answer, answer.empty() ? 0 : data[1] % answer.size());
  MOED_CHECK(parts.size() == again.size());
  size_t at = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    MOED_CHECK(parts[i].kind == again[i].kind && parts[i].text == again[i].text && parts[i].name == again[i].name);
    MOED_CHECK(!IsValidUtf8(answer) || IsValidUtf8(parts[i].text));
    if (parts[i].kind == AnswerPart::Kind::kToolCall) continue;
    for (const char c : parts[i].text) {
      at = answer.find(c, at);
      MOED_CHECK(at++ != std::string_view::npos);
    }
  }
  return 0;
}
