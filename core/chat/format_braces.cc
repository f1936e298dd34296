#include <algorithm>

#include "core/base/status.h"
#include "core/chat/format.h"
#include "core/chat/python_text.h"
#include "core/chat/run.h"
#include "core/chat/show.h"
#include "core/chat/subscript.h"
#include "core/tokenizer/unicode.h"

namespace moed::chat {
namespace {

bool IsDigits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// At most 6 digits: no template has more arguments, and no field more width.
absl::StatusOr<int> SmallNumber(std::string_view digits) {
  if (digits.size() > 6) return InvalidArgument("Too many decimal digits in format string");
  int number = 0;
  for (const char c : digits) number = number * 10 + (c - '0');
  return number;
}

class BracesFormatter {
 public:
  BracesFormatter(Run& run, const Call& values) : run_(run), values_(values) {}

  // `depth`: how deep fields may lie within each other's formats.
  absl::StatusOr<std::string> Format(std::string_view text, int depth) {
    if (depth < 0) return InvalidArgument("Max string recursion exceeded");
    std::string out;
    size_t at = 0;
    while (at < text.size()) {
      const char c = text[at];
      if (c != '{' && c != '}') {
        out += c;
        ++at;
      } else if (at + 1 < text.size() && text[at + 1] == c) {
        out += c;
        at += 2;
      } else if (c == '}' || at + 1 == text.size()) {
        return InvalidArgument("Single '", std::string(1, c), "' encountered in format string");
      } else {
        MOED_ASSIGN_OR_RETURN(const size_t end, FieldEnd(text, at + 1));
        MOED_ASSIGN_OR_RETURN(const std::string field, Field(text.substr(at + 1, end - at - 1), depth));
        out += field;
        at = end + 1;
      }
      MOED_RETURN_IF_ERROR(run_.Fits(out.size()));
    }
    return out;
  }

 private:
  static absl::StatusOr<size_t> FieldEnd(std::string_view text, size_t at) {
    int open = 1;
    for (; at < text.size(); ++at) {
      if (text[at] == '{') ++open;
      if (text[at] == '}' && --open == 0) return at;
    }
    return InvalidArgument("expected '}' before end of string");
  }

  absl::StatusOr<std::string> Field(std::string_view field, int depth) {
    const size_t bracket = field.find('[');
    size_t name_end = std::min(field.find_first_of("!:"), field.size());
    if (bracket < name_end)
      name_end = std::min(field.find_first_of("!:", std::min(field.find(']', bracket), field.size())), field.size());
    MOED_ASSIGN_OR_RETURN(Value value, Lookup(field.substr(0, name_end)));
    field.remove_prefix(name_end);
    if (!field.empty() && field[0] == '!') {
      if (field.size() < 2) return InvalidArgument("end of string while looking for conversion specifier");
      if (field.size() > 2 && field[2] != ':') return InvalidArgument("expected ':' after conversion specifier");
      MOED_ASSIGN_OR_RETURN(value, Converted(value, field[1]));
      field.remove_prefix(2);
    }
    if (!field.empty()) field.remove_prefix(1);
    MOED_ASSIGN_OR_RETURN(const std::string spec, Format(field, depth - 1));
    return Write(value, spec);
  }

  absl::StatusOr<Value> Converted(const Value& value, char conversion) {
    std::string text;
    if (conversion == 's') {
      MOED_ASSIGN_OR_RETURN(MarkedText shown, Str(run_, value));
      text = std::move(shown.text);
    } else if (conversion == 'r' || conversion == 'a') {
      MOED_ASSIGN_OR_RETURN(text, Repr(run_, value));
      if (conversion == 'a' && value.is(Kind::kText)) text = AsciiQuotedText(value.text());
    } else {
      return InvalidArgument("Unknown conversion specifier ", std::string(1, conversion));
    }
    return run_.NewOwnText(text);  // of the fields: what comes out is foreign as a whole
  }

  absl::StatusOr<Value> First(std::string_view name) {
    if (name.empty() || IsDigits(name)) {
      if (name.empty() ? numbered_ == Numbered::kByHand : numbered_ == Numbered::kByItself) {
        return InvalidArgument("cannot switch from manual field specification to automatic field numbering");
      }
      numbered_ = name.empty() ? Numbered::kByItself : Numbered::kByHand;
      int index = next_;
      if (name.empty()) {
        ++next_;
      } else {
        MOED_ASSIGN_OR_RETURN(index, SmallNumber(name));
      }
      if (static_cast<size_t>(index) >= values_.positional.size()) {
        return InvalidArgument("tuple index out of range");
      }
      return values_.positional[static_cast<size_t>(index)];
    }
    for (const auto& [keyword, value] : values_.keywords) {
      if (keyword == name) return value;
    }
    return InvalidArgument(QuotedText(name));
  }

  absl::StatusOr<Value> Lookup(std::string_view path) {
    const size_t first = std::min(path.find_first_of(".["), path.size());
    MOED_ASSIGN_OR_RETURN(Value value, First(path.substr(0, first)));
    path.remove_prefix(first);
    while (!path.empty()) {
      const bool item = path[0] == '[';
      const size_t end = item ? path.find(']') : std::min(path.find_first_of(".[", 1), path.size());
      if (end == std::string_view::npos) return InvalidArgument("Missing ']' in format string");
      const std::string_view name = path.substr(1, end - 1);
      if (name.empty()) return InvalidArgument("Empty attribute in format string");
      if (!item) {
        MOED_ASSIGN_OR_RETURN(value, Attribute(run_, value, name));
      } else if (IsDigits(name)) {
        MOED_ASSIGN_OR_RETURN(const int index, SmallNumber(name));
        MOED_ASSIGN_OR_RETURN(value, Item(run_, value, Value(Integer{index})));
      } else {
        MOED_ASSIGN_OR_RETURN(const Value key, run_.NewOwnText(name));
        MOED_ASSIGN_OR_RETURN(value, Item(run_, value, key));
      }
      path.remove_prefix(item ? end + 1 : end);
    }
    return value;
  }

  static absl::StatusOr<FieldFormat> ParseSpec(std::string_view spec, std::string_view type) {
    FieldFormat format;
    constexpr std::string_view kAligns = "<>=^";
    const size_t first = spec.empty() ? 0 : FirstCharacterBytes(spec);
    if (spec.size() > first && kAligns.find(spec[first]) != std::string_view::npos) {
      format.fill = spec.substr(0, first);
      format.align = spec[first];
      spec.remove_prefix(first + 1);
    } else if (!spec.empty() && kAligns.find(spec[0]) != std::string_view::npos) {
      format.align = spec[0];
      spec.remove_prefix(1);
    }
    const auto takes = [&](std::string_view letters) {
      const bool there = !spec.empty() && letters.find(spec[0]) != std::string_view::npos;
      const char letter = there ? spec[0] : '\0';
      if (there) spec.remove_prefix(1);
      return letter;
    };
    if (const char sign = takes("+- ")) format.sign = sign;
    format.alternate = takes("#") != 0;
    if (takes("0") != 0 && format.align == 0) {
      format.fill.assign(1, '0');
      format.align = '=';
    }
    const auto digits = [&] {
      const size_t count = std::min(spec.find_first_not_of("0123456789"), spec.size());
      const std::string_view found = spec.substr(0, count);
      spec.remove_prefix(count);
      return found;
    };
    MOED_ASSIGN_OR_RETURN(format.width, SmallNumber(digits()));
    format.grouping = takes(",_");
    if (takes(".") != 0) {
      const std::string_view precision = digits();
      if (precision.empty()) return InvalidArgument("Format specifier missing precision");
      MOED_ASSIGN_OR_RETURN(format.precision, SmallNumber(precision));
    }
    if (spec.size() > 1) return InvalidArgument("Invalid format specifier");
    if (!spec.empty()) format.type = spec[0];
    if (!spec.empty() && std::string_view("bcdeEfFgGnosxX%").find(spec[0]) == std::string_view::npos)
      return UnknownCode(spec[0], type);
    return format;
  }

  static absl::Status UnknownCode(char code, std::string_view type) {
    return InvalidArgument("Unknown format code '", std::string(1, code), "' for object of type '", type, "'");
  }

  absl::StatusOr<std::string> Write(const Value& value, std::string_view spec) {
    if (spec.empty()) {
      MOED_ASSIGN_OR_RETURN(MarkedText text, Str(run_, value));
      return std::move(text.text);
    }
    const std::string_view type = TypeName(value);
    if (!value.is(Kind::kText) && !value.is_number()) {
      return InvalidArgument("unsupported format string passed to ", type, ".__format__");
    }
    MOED_ASSIGN_OR_RETURN(FieldFormat format, ParseSpec(spec, type));
    MOED_RETURN_IF_ERROR(run_.Fits(static_cast<size_t>(format.width) * format.fill.size()));
    if (value.is(Kind::kText)) return WriteText(value.text(), format);
    format.precision = std::min(format.precision, 400);
    constexpr std::string_view kOfWhole = "bdonxX", kOfFloats = "eEfFgG%n";
    const auto is_of = [&](std::string_view types) {
      return format.type == 0 || types.find(format.type) != std::string_view::npos;
    };
    if (value.is_whole() && is_of(kOfWhole)) {
      if (format.precision >= 0) return InvalidArgument("Precision not allowed in integer format specifier");
      return WriteWhole(value.as_integer(), format);
    }
    if (is_of(kOfFloats)) return WriteFloat(value.as_float(), format);
    return UnknownCode(format.type, type);
  }

  static absl::StatusOr<std::string> WriteText(std::string_view text, const FieldFormat& format) {
    if (format.type != 0 && format.type != 's') return UnknownCode(format.type, "str");
    if (format.sign != '-') return InvalidArgument("Sign not allowed in string format specifier");
    if (format.align == '=' && format.fill != "0") {
      return InvalidArgument("'=' alignment not allowed in string format specifier");
    }
    if (format.precision >= 0) text = text.substr(0, OffsetOf(text, static_cast<size_t>(format.precision)));
    return Padded(text, format, format.align == 0 || format.align == '=' ? '<' : format.align);
  }

  enum class Numbered : uint8_t { kNot, kByItself, kByHand };

  Run& run_;
  const Call& values_;
  Numbered numbered_ = Numbered::kNot;
  int next_ = 0;
};

}  // namespace

absl::StatusOr<Value> FormatBraces(Run& run, const Value& text, const Call& values) {
  constexpr int kDepth = 2;
  MOED_ASSIGN_OR_RETURN(std::string formatted, BracesFormatter(run, values).Format(text.text(), kDepth));
  bool foreign = HoldsForeign(text) || std::ranges::any_of(values.positional, HoldsForeign);
  for (const auto& [name, value] : values.keywords) foreign |= HoldsForeign(value);
  return run.NewText(MarkedText::Whole(std::move(formatted), foreign), text.as<Text>().markup);
}

}  // namespace moed::chat
