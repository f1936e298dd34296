#include "core/chat/python_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "core/base/utf8.h"
#include "core/tokenizer/unicode.h"

namespace moed::chat {
namespace {

// U+0085, U+2028 and U+2029 are too, but they are more than a byte.
bool EndsLine(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool HasCharacter(std::string_view characters, std::string_view character) {
  return characters.find(character) != std::string_view::npos;
}

size_t LeadingBytes(std::string_view text, std::optional<std::string_view> characters) {
  size_t at = 0;
  while (at < text.size()) {
    const std::string_view character = text.substr(at, FirstCharacterBytes(text.substr(at)));
    if (characters ? !HasCharacter(*characters, character) : !IsSpace(FirstCharacter(character))) break;
    at += character.size();
  }
  return at;
}

size_t TrailingBytes(std::string_view text, std::optional<std::string_view> characters) {
  size_t end = text.size();
  while (end > 0) {
    const size_t bytes = LastCharacterBytes(text.substr(0, end));
    const std::string_view character = text.substr(end - bytes, bytes);
    if (characters ? !HasCharacter(*characters, character) : !IsSpace(FirstCharacter(character))) break;
    end -= bytes;
  }
  return text.size() - end;
}

// Bytes up to the first white space.
size_t WordBytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && !IsSpace(FirstCharacter(text.substr(at)))) at += FirstCharacterBytes(text.substr(at));
  return at;
}

// Bytes after the last white space.
size_t LastWordBytes(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t bytes = LastCharacterBytes(text.substr(0, end));
    if (IsSpace(FirstCharacter(text.substr(end - bytes)))) break;
    end -= bytes;
  }
  return text.size() - end;
}

void AppendHex(std::string& out, char letter, char32_t value, int digits) {
  out += '\\';
  out += letter;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += "0123456789abcdef"[value >> shift & 0xF];
}

void AppendEscape(std::string& out, char32_t c) {
  if (c < 0x100) {
    AppendHex(out, 'x', c, 2);
  } else if (c < 0x10000) {
    AppendHex(out, 'u', c, 4);
  } else {
    AppendHex(out, 'U', c, 8);
  }
}

std::string Quoted(std::string_view text, bool ascii) {
  const bool has_single = text.find('\'') != std::string_view::npos, has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const std::string_view character = text.substr(at, FirstCharacterBytes(text.substr(at)));
    const char32_t c = FirstCharacter(character);
    at += character.size();
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (IsPrintable(c) && (!ascii || c < 0x80)) {
      out += character;
    } else {
      AppendEscape(out, c);
    }
  }
  return out + quote;
}

}  // namespace

size_t OffsetOf(std::string_view text, size_t index) {
  size_t at = 0;
  while (at < text.size()) {
    if (!IsContinuation(text[at])) {
      if (index == 0) return at;
      --index;
    }
    ++at;
  }
  return at;
}

size_t FindText(std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (wanted.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  return found == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t FindLastText(std::string_view text, std::string_view wanted) {
  const std::string reversed(text.rbegin(), text.rend()), backwards(wanted.rbegin(), wanted.rend());
  const size_t found = FindText(reversed, backwards);
  return found == std::string_view::npos ? found : text.size() - found - wanted.size();
}

bool IsSpace(char32_t c) { return IsWhiteSpace(c) || (c >= 0x1C && c <= 0x1F); }

bool IsPrintable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

std::string_view Strip(std::string_view text, std::optional<std::string_view> characters, Side side) {
  if (side != Side::kRight) text.remove_prefix(LeadingBytes(text, characters));
  if (side != Side::kLeft) text.remove_suffix(TrailingBytes(text, characters));
  return text;
}

std::vector<std::string_view> SplitAtSpace(std::string_view text, int64_t most, bool from_right) {
  const Side near = from_right ? Side::kRight : Side::kLeft;
  std::vector<std::string_view> parts;
  for (text = Strip(text, std::nullopt, near); !text.empty(); text = Strip(text, std::nullopt, near)) {
    if (most == 0) {
      parts.push_back(text);
      break;
    }
    --most;
    const size_t bytes = from_right ? LastWordBytes(text) : WordBytes(text);
    parts.push_back(from_right ? text.substr(text.size() - bytes) : text.substr(0, bytes));
    from_right ? text.remove_suffix(bytes) : text.remove_prefix(bytes);
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator, int64_t most, bool from_right) {
  std::vector<size_t> found;
  for (size_t at = FindText(text, separator); at != std::string_view::npos;
       at = FindText(text, separator, at + separator.size())) {
    found.push_back(at);
    if (!from_right && most >= 0 && static_cast<int64_t>(found.size()) > most) break;
  }
  if (from_right) {  // occurrences that overlap are counted from the right
    found.clear();
    const std::string reversed(text.rbegin(), text.rend()), backwards(separator.rbegin(), separator.rend());
    for (size_t at = FindText(reversed, backwards); at != std::string_view::npos;
         at = FindText(reversed, backwards, at + backwards.size())) {
      if (most >= 0 && static_cast<int64_t>(found.size()) == most) break;
      found.push_back(text.size() - at - separator.size());
    }
    std::reverse(found.begin(), found.end());
  } else if (most >= 0 && static_cast<int64_t>(found.size()) > most) {
    found.resize(static_cast<size_t>(most));
  }
  std::vector<std::string_view> parts;
  size_t begin = 0;
  for (const size_t at : found) {
    parts.push_back(text.substr(begin, at - begin));
    begin = at + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = FirstCharacter(text.substr(at));
    const size_t end = at;
    at += FirstCharacterBytes(text.substr(at));
    if (!EndsLine(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string QuotedText(std::string_view text) { return Quoted(text, false); }
std::string AsciiQuotedText(std::string_view text) { return Quoted(text, true); }

std::string EscapedForHtml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace moed::chat
