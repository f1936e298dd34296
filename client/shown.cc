#include "client/shown.h"

#include <unistd.h>

#include "absl/strings/str_format.h"
#include "core/base/utf8.h"

namespace moed {
namespace {

constexpr std::string_view kNoCharacter = "\uFFFD";

// Of valid UTF-8, where U+0080 to U+009F are C2 80 to C2 9F.
void AppendEscaped(std::string_view text, std::string_view kept, std::string& out) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte == 0xc2 && static_cast<uint8_t>(text[i + 1]) < 0xa0) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint8_t>(text[++i]));
    } else if ((byte < 0x20 || byte == 0x7f) && kept.find(text[i]) == std::string_view::npos) {
      absl::StrAppendFormat(&out, "\\x%02x", byte);
    } else {
      out += text[i];
    }
  }
}

std::string On(std::FILE* stream, std::string_view text, std::string_view kept) {
  if (isatty(fileno(stream)) == 0) return std::string(text);
  std::string out;
  while (true) {
    const size_t valid = ValidUtf8Prefix(text);
    AppendEscaped(text.substr(0, valid), kept, out);
    if (valid == text.size()) return out;
    out += kNoCharacter;
    text.remove_prefix(valid + 1);
  }
}

}  // namespace

std::string LineOn(std::FILE* stream, std::string_view text) { return On(stream, text, ""); }
std::string TextOn(std::FILE* stream, std::string_view text) { return On(stream, text, "\n\t"); }

}  // namespace moed
