#include <algorithm>
#include <cmath>

#include "core/base/status.h"
#include "core/chat/equality.h"
#include "core/chat/python_text.h"
#include "core/chat/run.h"
#include "core/chat/show.h"
#include "core/tokenizer/unicode.h"

namespace moed::chat {
namespace {

std::string JsonFloat(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return FloatText(value);
}

class JsonWriter {
 public:
  JsonWriter(Run& run, const JsonStyle& style, std::string& out) : run_(run), style_(style), out_(out) {}

  absl::Status Write(const Value& value, int level) {
    MOED_RETURN_IF_ERROR(run_.Work(1));
    MOED_RETURN_IF_ERROR(run_.Fits(out_.size()));
    switch (value.kind()) {
      case Kind::kNone:
        out_ += "null";
        return absl::OkStatus();
      case Kind::kBool:
        out_ += value.as_bool() ? "true" : "false";
        return absl::OkStatus();
      case Kind::kInteger:
        out_ += IntegerText(value.as_integer());
        return absl::OkStatus();
      case Kind::kFloat:
        out_ += JsonFloat(value.as_float());
        return absl::OkStatus();
      case Kind::kText:
        return WriteText(value.text());
      case Kind::kSequence:
        if (value.as<Sequence>().flavor > Flavor::kTuple) break;
        return WriteItems(value.items(), level);
      case Kind::kDict:
        return WriteDict(value.dict(), level);
      default:
        break;
    }
    return InvalidArgument("Object of type ", TypeName(value), " is not JSON serializable");
  }

 private:
  absl::Status WriteText(std::string_view text) {
    out_ += '"';
    for (size_t at = 0; at < text.size();) {
      const size_t bytes = FirstCharacterBytes(text.substr(at));
      WriteCharacter(text.substr(at, bytes));
      at += bytes;
    }
    out_ += '"';
    return run_.WorkOn(text.size());
  }

  void WriteCharacter(std::string_view character) {
    constexpr std::string_view kPlain = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
    const char32_t c = FirstCharacter(character);
    if (const size_t short_form = kPlain.find(character); short_form != std::string_view::npos) {
      out_ += '\\';
      out_ += kLetters[short_form];
    } else if (c < 0x20 || (style_.ascii && c >= 0x7F)) {
      WriteEscape(c);
    } else {
      out_ += character;
    }
  }

  void WriteEscape(char32_t c) {
    if (c >= 0x10000) {
      WriteEscape(0xD800 + ((c - 0x10000) >> 10));
      return WriteEscape(0xDC00 + ((c - 0x10000) & 0x3FF));
    }
    out_ += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out_ += "0123456789abcdef"[c >> shift & 0xF];
  }

  void WriteIndent(int level) {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += *style_.indent;
  }

  absl::Status WriteItems(const std::vector<Value>& items, int level) {
    if (items.empty()) {
      out_ += "[]";
      return absl::OkStatus();
    }
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      WriteIndent(level + 1);
      MOED_RETURN_IF_ERROR(Write(items[i], level + 1));
    }
    WriteIndent(level);
    out_ += ']';
    return absl::OkStatus();
  }

  static absl::StatusOr<std::string> KeyText(const Value& key) {
    switch (key.kind()) {
      case Kind::kText:
        return key.text();
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return key.as_bool() ? "true" : "false";
      case Kind::kInteger:
        return IntegerText(key.as_integer());
      case Kind::kFloat:
        return JsonFloat(key.as_float());
      default:
        return InvalidArgument("keys must be str, int, float, bool or None, not ", TypeName(key));
    }
  }

  // Sorted as Python sorts pairs: by keys alone, since no two are equal.
  absl::StatusOr<std::vector<const Dict::Entry*>> Ordered(const Dict& dict) {
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (!style_.sorted) return entries;
    absl::Status status;
    std::stable_sort(entries.begin(), entries.end(), [&](const Dict::Entry* a, const Dict::Entry* b) {
      if (!status.ok()) return false;
      const auto less = IsLess(run_, a->first, b->first);
      if (!less.ok()) status = less.status();
      return less.ok() && *less;
    });
    if (!status.ok()) return status;
    return entries;
  }

  absl::Status WriteDict(const Dict& dict, int level) {
    if (dict.entries().empty()) {
      out_ += "{}";
      return absl::OkStatus();
    }
    MOED_ASSIGN_OR_RETURN(const auto entries, Ordered(dict));
    out_ += '{';
    for (const Dict::Entry* entry : entries) {
      if (entry != entries[0]) out_ += style_.item_separator;
      WriteIndent(level + 1);
      MOED_ASSIGN_OR_RETURN(const std::string key, KeyText(entry->first));
      MOED_RETURN_IF_ERROR(WriteText(key));
      out_ += style_.key_separator;
      MOED_RETURN_IF_ERROR(Write(entry->second, level + 1));
    }
    WriteIndent(level);
    out_ += '}';
    return absl::OkStatus();
  }

  Run& run_;
  const JsonStyle& style_;
  std::string& out_;
};

}  // namespace

absl::StatusOr<std::string> ToJson(Run& run, const Value& value, const JsonStyle& style) {
  std::string out;
  MOED_RETURN_IF_ERROR(JsonWriter(run, style, out).Write(value, 0));
  return out;
}

}  // namespace moed::chat
