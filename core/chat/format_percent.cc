#include <algorithm>

#include "core/base/status.h"
#include "core/chat/format.h"
#include "core/chat/python_text.h"
#include "core/chat/run.h"
#include "core/chat/show.h"
#include "core/tokenizer/unicode.h"

namespace moed::chat {
namespace {

class PercentFormatter {
 public:
  PercentFormatter(Run& run, const Value& text, const Value& values)
      : run_(run),
        text_(text.text()),
        markup_(text.as<Text>().markup),
        tuple_(values.is(Kind::kSequence) && values.as<Sequence>().flavor == Flavor::kTuple),
        values_(values) {}

  absl::StatusOr<std::string> Format() {
    while (at_ < text_.size()) {
      const size_t percent = std::min(text_.find('%', at_), text_.size());
      out_ += text_.substr(at_, percent - at_);
      at_ = percent;
      if (at_ < text_.size()) MOED_RETURN_IF_ERROR(Field());
      MOED_RETURN_IF_ERROR(run_.Fits(out_.size()));
    }
    const bool left = tuple_ ? used_ < values_.items().size() : used_ == 0 && !values_.is(Kind::kDict);
    if (left && !by_name_) return InvalidArgument("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  absl::StatusOr<Value> Next() {
    const bool none_left = tuple_ ? used_ >= values_.items().size() : used_ > 0;
    if (by_name_ || none_left) return InvalidArgument("not enough arguments for format string");
    ++used_;
    return tuple_ ? values_.items()[used_ - 1] : values_;
  }

  absl::StatusOr<int> Number() {
    if (at_ < text_.size() && text_[at_] == '*') {
      ++at_;
      MOED_ASSIGN_OR_RETURN(const Value given, Next());
      if (!given.is_whole()) return InvalidArgument("* wants int");
      return static_cast<int>(std::clamp<Integer>(given.as_integer(), -kMostWidth, kMostWidth));
    }
    int number = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      number = std::min(number * 10 + (text_[at_++] - '0'), kMostWidth);
    }
    return number;
  }

  absl::Status Field() {
    ++at_;  // the percent sign
    FieldFormat format;
    std::optional<Value> named;
    if (at_ < text_.size() && text_[at_] == '(') {
      MOED_ASSIGN_OR_RETURN(named, Named());
    }
    for (; at_ < text_.size() && std::string_view("#0- +").find(text_[at_]) != std::string_view::npos; ++at_) {
      const char flag = text_[at_];
      if (flag == '#') format.alternate = true;
      if (flag == '-') format.align = '<';
      if (flag == '0' && format.align == 0) format.align = '=';
      if (flag == '+' || (flag == ' ' && format.sign != '+')) format.sign = flag;
    }
    if (format.align == '=') format.fill.assign(1, '0');
    MOED_ASSIGN_OR_RETURN(format.width, Number());
    if (format.width < 0) {
      format.align = '<';
      format.width = -format.width;
    }
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      MOED_ASSIGN_OR_RETURN(const int precision, Number());
      format.precision = std::max(precision, 0);
    }
    while (at_ < text_.size() && std::string_view("hlL").find(text_[at_]) != std::string_view::npos) ++at_;
    if (at_ >= text_.size()) return InvalidArgument("incomplete format");
    const char type = text_[at_++];
    if (type == '%') {
      out_ += '%';
      return absl::OkStatus();
    }
    Value value;
    if (named) {
      value = *named;
    } else {
      MOED_ASSIGN_OR_RETURN(value, Next());
    }
    return Write(value, type, format);
  }

  absl::StatusOr<Value> Named() {
    const size_t end = text_.find(')', at_);
    if (end == std::string_view::npos) return InvalidArgument("incomplete format key");
    const std::string_view name = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    if (!values_.is(Kind::kDict)) return InvalidArgument("format requires a mapping");
    by_name_ = true;
    const Value* found = values_.dict().Find(name);
    if (found == nullptr) return InvalidArgument(QuotedText(name));
    return *found;
  }

  absl::Status Write(const Value& value, char type, FieldFormat format) {
    MOED_RETURN_IF_ERROR(run_.Fits(out_.size() + static_cast<size_t>(format.width)));
    switch (type) {
      case 's':
      case 'r':
      case 'a':
        return WriteShown(value, type, format);
      case 'c':
        return WriteCharacter(value, format);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return WriteInteger(value, type, format);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (value.is(Kind::kUndefined)) return InvalidArgument(value.as<Undefined>().Words());
        if (!value.is_number()) return InvalidArgument("must be real number, not ", TypeName(value));
        format.type = type;
        format.precision = std::min(format.precision, 400);
        out_ += WriteFloat(value.as_float(), format);
        return absl::OkStatus();
      default:
        break;
    }
    char code[16];
    std::snprintf(code, sizeof(code), "0x%x", static_cast<unsigned>(static_cast<uint8_t>(type)));
    return InvalidArgument("unsupported format character '", std::string(1, type), "' (", code, ") at index ",
                           CountCharacters(text_.substr(0, at_ - 1)));
  }

  absl::Status WriteShown(const Value& value, char type, const FieldFormat& format) {
    std::string shown;
    if (type == 's') {
      MOED_ASSIGN_OR_RETURN(MarkedText text, Str(run_, value));
      shown = std::move(text.text);
      const bool safe = value.is(Kind::kText) && value.as<Text>().markup;
      if (markup_ && !safe && !value.is_number()) shown = EscapedForHtml(shown);
    } else {
      MOED_ASSIGN_OR_RETURN(shown, Repr(run_, value));
      if (type == 'a' && value.is(Kind::kText)) shown = AsciiQuotedText(value.text());
    }
    if (format.precision >= 0) shown.resize(OffsetOf(shown, static_cast<size_t>(format.precision)));
    FieldFormat plain = format;
    plain.fill.assign(1, ' ');
    out_ += Padded(shown, plain, format.align == '<' ? '<' : '>');
    return absl::OkStatus();
  }

  absl::Status WriteCharacter(const Value& value, const FieldFormat& format) {
    std::string character;
    if (value.is(Kind::kText) && value.as<Text>().characters == 1) {
      character = value.text();
    } else if (value.is_whole() && value.as_integer() >= 0 && value.as_integer() < 0x110000 &&
               (value.as_integer() < 0xD800 || value.as_integer() > 0xDFFF)) {
      AppendUtf8(static_cast<char32_t>(value.as_integer()), character);
    } else {
      return InvalidArgument("%c requires int or char");
    }
    out_ += Padded(character, format, format.align == '<' ? '<' : '>');
    return absl::OkStatus();
  }

  absl::Status WriteInteger(const Value& value, char type, FieldFormat format) {
    if (value.is(Kind::kUndefined)) return InvalidArgument(value.as<Undefined>().Words());
    const bool decimal = type == 'd' || type == 'i' || type == 'u';
    if (!value.is_number() || (!decimal && value.is(Kind::kFloat))) {
      const std::string_view wanted = decimal ? "a real number" : "an integer";
      return InvalidArgument("%", std::string(1, type), " format: ", wanted, " is required, not ", TypeName(value));
    }
    if (value.is(Kind::kFloat) && !(std::abs(value.as_float()) < 1e30)) {
      return InvalidArgument("the chat template writes a number of more than 30 digits");
    }
    const Integer whole = value.is(Kind::kFloat) ? static_cast<Integer>(value.as_float()) : value.as_integer();
    format.type = decimal ? 'd' : type;
    out_ += WriteWhole(whole, format);
    return absl::OkStatus();
  }

  Run& run_;
  const std::string_view text_;
  const bool markup_, tuple_;
  const Value& values_;
  size_t at_ = 0, used_ = 0;
  bool by_name_ = false;
  std::string out_;
};

}  // namespace

absl::StatusOr<Value> FormatPercent(Run& run, const Value& text, const Value& values) {
  MOED_ASSIGN_OR_RETURN(std::string formatted, PercentFormatter(run, text, values).Format());
  const bool foreign = HoldsForeign(text) || HoldsForeign(values);
  return run.NewText(MarkedText::Whole(std::move(formatted), foreign), text.as<Text>().markup);
}

}  // namespace moed::chat
