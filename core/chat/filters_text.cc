#include <algorithm>

#include "core/base/status.h"
#include "core/chat/arithmetic.h"
#include "core/chat/filters.h"
#include "core/chat/format.h"
#include "core/chat/letter_case.h"
#include "core/chat/methods.h"
#include "core/chat/python_text.h"
#include "core/chat/run.h"
#include "core/chat/show.h"
#include "core/tokenizer/unicode.h"

namespace moed::chat {
namespace {

// Texts as they are, markup included; str() of anything else.
absl::StatusOr<Value> SoftText(Run& run, const Value& value) {
  if (value.is(Kind::kText)) return value;
  MOED_ASSIGN_OR_RETURN(MarkedText text, Str(run, value));
  return run.NewText(std::move(text));
}

using Mapping = std::string (*)(std::string_view);
template <Mapping map>
absl::StatusOr<Value> Mapped(Run& run, const Value& value, const Arguments&) {
  MOED_ASSIGN_OR_RETURN(const Value text, SoftText(run, value));
  return run.NewText(MarkedText::Whole(map(text.text()), HoldsForeign(text)), text.as<Text>().markup);
}

// The same as a method of texts.
absl::StatusOr<Value> AsMethod(Run& run, std::string_view name, const Value& value, Call call) {
  MOED_ASSIGN_OR_RETURN(const Value text, SoftText(run, value));
  const Method* method = FindTextMethod(name);
  MOED_ASSIGN_OR_RETURN(const Arguments arguments, Arguments::Bind(name, method->parameters, std::move(call)));
  return method->run(run, text, arguments);
}

absl::StatusOr<Value> Trim(Run& run, const Value& value, const Arguments& arguments) {
  Call call;
  if (arguments.Find(0) != nullptr) call.positional.push_back(arguments.at(0));
  return AsMethod(run, "strip", value, std::move(call));
}

absl::StatusOr<Value> Center(Run& run, const Value& value, const Arguments& arguments) {
  MOED_ASSIGN_OR_RETURN(const Integer width, arguments.Whole(0, 80));
  return AsMethod(run, "center", value, {{Value(width)}, {}});
}

// Words begin after spaces, hyphens and opening brackets.
std::string TitleOfWords(std::string_view text) {
  std::string out;
  size_t begin = 0;
  bool in_word = false;
  const auto end_word = [&](size_t end) {
    if (!in_word || end == begin) return;
    const std::string_view word = text.substr(begin, end - begin);
    const size_t first = FirstCharacterBytes(word);
    out += Upper(word.substr(0, first)) + Lower(word.substr(first));
  };
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = FirstCharacterBytes(text.substr(at));
    const char32_t c = FirstCharacter(text.substr(at));
    const bool parts = c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || IsSpace(c);
    if (parts) {
      end_word(at);
      out += text.substr(at, bytes);
      in_word = false;
    } else if (!in_word) {
      begin = at;
      in_word = true;
    }
    at += bytes;
  }
  end_word(text.size());
  return out;
}

absl::StatusOr<Value> Replace(Run& run, const Value& value, const Arguments& arguments) {
  MOED_ASSIGN_OR_RETURN(MarkedText text, Str(run, value));
  MOED_ASSIGN_OR_RETURN(const MarkedText old, Str(run, arguments.at(0)));
  MOED_ASSIGN_OR_RETURN(const MarkedText by, Str(run, arguments.at(1)));
  Integer most = -1;
  if (arguments.FindSome(2) != nullptr) {
    MOED_ASSIGN_OR_RETURN(most, arguments.Whole(2));
  }
  MOED_ASSIGN_OR_RETURN(const Value plain, run.NewText(std::move(text)));
  return ReplaceIn(run, plain, old.text, by, static_cast<int64_t>(std::clamp<Integer>(most, -1, Integer{1} << 60)));
}

absl::StatusOr<Value> Format(Run& run, const Value& value, const Arguments& arguments) {
  const Call& call = arguments.call();
  MOED_ASSIGN_OR_RETURN(const Value text, SoftText(run, value));
  if (call.keywords.empty()) {
    MOED_ASSIGN_OR_RETURN(const Value values, run.NewTuple(call.positional));
    return FormatPercent(run, text, values);
  }
  if (!call.positional.empty()) return InvalidArgument("can't handle positional and keyword arguments at the same time");
  std::vector<Dict::Entry> entries;
  for (const auto& [name, item] : call.keywords) {
    MOED_ASSIGN_OR_RETURN(Value key, run.NewOwnText(name));
    entries.emplace_back(std::move(key), item);
  }
  MOED_ASSIGN_OR_RETURN(const Value values, run.NewDict(std::move(entries)));
  return FormatPercent(run, text, values);
}

absl::StatusOr<Value> Indent(Run& run, const Value& value, const Arguments& arguments) {
  if (value.is(Kind::kUndefined)) return InvalidArgument(value.as<Undefined>().Words());
  if (!value.is(Kind::kText)) {
    return InvalidArgument("unsupported operand type(s) for +=: '", TypeName(value), "' and 'str'");
  }
  const bool first = arguments.True(1), blank = arguments.True(2);
  MarkedText indention = MarkedText::Own(std::string(4, ' '));
  if (const Value* width = arguments.Find(0)) {
    if (width->is(Kind::kText)) {
      indention = MarkedText::PartOf(width->as<Text>(), width->text());
    } else {
      MOED_ASSIGN_OR_RETURN(const Integer columns, arguments.Whole(0));
      MOED_RETURN_IF_ERROR(run.Fits(static_cast<size_t>(std::clamp<Integer>(columns, 0, Integer{1} << 40))));
      indention = MarkedText::Own(std::string(static_cast<size_t>(std::max<Integer>(columns, 0)), ' '));
    }
  }
  auto whole = MarkedText::PartOf(value.as<Text>(), value.text());
  whole.AppendOwn("\n");
  const auto lines = SplitLines(whole.text, false);
  MarkedText out;
  if (first) out.Append(indention);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.AppendOwn("\n");
    if (i > 0 && (blank || !lines[i].empty())) out.Append(indention);
    out.AppendPart(whole, lines[i]);
    MOED_RETURN_IF_ERROR(run.Fits(out.bytes()));
  }
  return run.NewText(std::move(out), value.as<Text>().markup);
}

absl::StatusOr<Value> Truncate(Run& run, const Value& value, const Arguments& arguments) {
  if (!value.is(Kind::kText)) return InvalidArgument("object of type '", TypeName(value), "' has no len()");
  MOED_ASSIGN_OR_RETURN(const Integer length, arguments.Whole(0, 255));
  MOED_ASSIGN_OR_RETURN(const std::string end, arguments.Text(2, "..."));
  Integer leeway = 5;
  if (arguments.FindSome(3) != nullptr) {
    MOED_ASSIGN_OR_RETURN(leeway, arguments.Whole(3));
  }
  const auto end_length = static_cast<Integer>(CountCharacters(end));
  if (length < end_length) {
    return InvalidArgument("expected length >= ", IntegerText(end_length), ", got ", IntegerText(length));
  }
  if (leeway < 0) return InvalidArgument("expected leeway >= 0, got ", IntegerText(leeway));
  const Text& text = value.as<Text>();
  if (static_cast<Integer>(text.characters) <= length + leeway) return value;
  std::string_view cut = std::string_view(text.text).substr(0, OffsetOf(text.text, static_cast<size_t>(length - end_length)));
  const size_t space = cut.rfind(' ');
  if (!arguments.True(1) && space != std::string::npos) cut = cut.substr(0, space);
  auto truncated = MarkedText::PartOf(text, cut);
  truncated.Append(MarkedText::Whole(end, arguments.Find(2) != nullptr && HoldsForeign(arguments.at(2))));
  return run.NewText(std::move(truncated), text.markup);
}

absl::StatusOr<Value> Escape(Run& run, const Value& value, const Arguments&) {
  if (value.is(Kind::kText) && value.as<Text>().markup) return value;
  MOED_ASSIGN_OR_RETURN(const MarkedText text, Str(run, value));
  return run.NewText(MarkedText::Whole(EscapedForHtml(text.text), text.HoldsForeign()), true);
}

absl::StatusOr<Value> ForceEscape(Run& run, const Value& value, const Arguments&) {
  MOED_ASSIGN_OR_RETURN(const MarkedText text, Str(run, value));
  return run.NewText(MarkedText::Whole(EscapedForHtml(text.text), text.HoldsForeign()), true);
}

absl::StatusOr<Value> Safe(Run& run, const Value& value, const Arguments&) {
  MOED_ASSIGN_OR_RETURN(MarkedText text, Str(run, value));
  return run.NewText(std::move(text), true);
}

absl::StatusOr<Value> String(Run& run, const Value& value, const Arguments&) { return SoftText(run, value); }

absl::StatusOr<Value> WordCount(Run& run, const Value& value, const Arguments&) {
  MOED_ASSIGN_OR_RETURN(const Value text, SoftText(run, value));
  Integer words = 0;
  bool in_word = false;
  const std::string_view all = text.text();
  for (size_t at = 0; at < all.size();) {
    const std::string_view character = all.substr(at, FirstCharacterBytes(all.substr(at)));
    const bool of_word = character == "_" || IsAlphanumeric(character);
    if (of_word && !in_word) ++words;
    in_word = of_word;
    at += character.size();
  }
  return Value(words);
}

absl::StatusOr<Value> Json(Run& run, const Value& value, const Arguments& arguments) {
  JsonStyle style;
  style.ascii = arguments.True(0);
  if (const Value* indent = arguments.FindSome(1)) {
    style.item_separator.assign(1, ',');
    if (indent->is(Kind::kText)) {
      style.indent = indent->text();
    } else {
      MOED_ASSIGN_OR_RETURN(const Integer columns, arguments.Whole(1));
      MOED_RETURN_IF_ERROR(run.Fits(static_cast<size_t>(std::clamp<Integer>(columns, 0, Integer{1} << 40))));
      style.indent = std::string(static_cast<size_t>(std::max<Integer>(columns, 0)), ' ');
    }
  }
  if (const Value* separators = arguments.FindSome(2)) {
    MOED_ASSIGN_OR_RETURN(const auto pair, Elements(run, *separators));
    if (pair.size() != 2 || !pair[0].is(Kind::kText) || !pair[1].is(Kind::kText)) {
      return InvalidArgument("tojson's separators are two texts, not ", TypeName(*separators), " of ", pair.size());
    }
    style.item_separator = pair[0].text();
    style.key_separator = pair[1].text();
  }
  style.sorted = arguments.True(3);
  MOED_ASSIGN_OR_RETURN(std::string json, ToJson(run, value, style));
  return run.NewText(MarkedText::Whole(std::move(json), HoldsForeign(value)));
}

constexpr Filter kFilters[] = {
    {"capitalize", "", Mapped<Capitalized>},
    {"center", "width?", Center},
    {"e", "", Escape},
    {"escape", "", Escape},
    {"forceescape", "", ForceEscape},
    {"format", "*", Format},
    {"indent", "width? first? blank?", Indent},
    {"lower", "", Mapped<Lower>},
    {"replace", "old new count?", Replace},
    {"safe", "", Safe},
    {"string", "", String},
    {"title", "", Mapped<TitleOfWords>},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", Json},
    {"trim", "chars?", Trim},
    {"truncate", "length? killwords? end? leeway?", Truncate},
    {"upper", "", Mapped<Upper>},
    {"wordcount", "", WordCount},
};

}  // namespace

std::span<const Filter> TextFilters() { return kFilters; }

}  // namespace moed::chat
