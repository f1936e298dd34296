// Python's str.
#include <algorithm>

#include "core/base/status.h"
#include "core/base/utf8.h"
#include "core/chat/format.h"
#include "core/chat/letter_case.h"
#include "core/chat/methods.h"
#include "core/chat/python_text.h"
#include "core/chat/run.h"
#include "core/chat/show.h"
#include "core/tokenizer/unicode.h"

namespace moed::chat {
namespace {

constexpr int64_t kMostCount = int64_t{1} << 60;

int64_t Narrow(Integer value) { return static_cast<int64_t>(std::clamp<Integer>(value, -kMostCount, kMostCount)); }

// What a method of a markup makes is markup.
absl::StatusOr<Value> Same(Run& run, const Value& self, MarkedText text) {
  return run.NewText(std::move(text), self.as<Text>().markup);
}
absl::StatusOr<Value> SamePart(Run& run, const Value& self, std::string_view part) {
  return Same(run, self, MarkedText::PartOf(self.as<Text>(), part));
}
// Foreign as a whole where `self` is in part.
absl::StatusOr<Value> SameWhole(Run& run, const Value& self, std::string text) {
  return Same(run, self, MarkedText::Whole(std::move(text), HoldsForeign(self)));
}

using Mapping = std::string (*)(std::string_view);
template <Mapping map>
absl::StatusOr<Value> Mapped(Run& run, const Value& self, const Arguments&) {
  return SameWhole(run, self, map(self.text()));
}

using Predicate = bool (*)(std::string_view);
template <Predicate holds>
absl::StatusOr<Value> Asked(Run&, const Value& self, const Arguments&) {
  return Value(holds(self.text()));
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

template <Side side>
absl::StatusOr<Value> StripMethod(Run& run, const Value& self, const Arguments& arguments) {
  const Value* characters = arguments.FindSome(0);
  if (characters != nullptr && !characters->is(Kind::kText)) {
    constexpr std::string_view kNames[] = {"strip", "lstrip", "rstrip"};
    return InvalidArgument(kNames[static_cast<int>(side)], " arg must be None or str");
  }
  if (characters == nullptr) return SamePart(run, self, Strip(self.text(), std::nullopt, side));
  MOED_RETURN_IF_ERROR(run.WorkOn(self.text().size() * std::min<size_t>(characters->text().size(), 64)));
  return SamePart(run, self, Strip(self.text(), characters->text(), side));
}

// `parts` lie in the text.
absl::StatusOr<Value> Parts(Run& run, const Value& self, Flavor flavor, const std::vector<std::string_view>& parts) {
  MOED_RETURN_IF_ERROR(run.Fits(self.text().size() + parts.size() * (sizeof(Text) + sizeof(Value))));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) {
    MOED_ASSIGN_OR_RETURN(Value item, SamePart(run, self, part));
    items.push_back(std::move(item));
  }
  return run.NewSequence(flavor, std::move(items));
}

template <bool from_right>
absl::StatusOr<Value> SplitMethod(Run& run, const Value& self, const Arguments& arguments) {
  const Value* separator = arguments.FindSome(0);
  MOED_ASSIGN_OR_RETURN(const Integer most, arguments.Whole(1, kAllSplits));
  if (separator == nullptr) return Parts(run, self, Flavor::kList, SplitAtSpace(self.text(), Narrow(most), from_right));
  if (!separator->is(Kind::kText)) return InvalidArgument("must be str or None, not ", TypeName(*separator));
  if (separator->text().empty()) return InvalidArgument("empty separator");
  return Parts(run, self, Flavor::kList, SplitAt(self.text(), separator->text(), Narrow(most), from_right));
}

absl::StatusOr<Value> SplitLinesMethod(Run& run, const Value& self, const Arguments& arguments) {
  return Parts(run, self, Flavor::kList, SplitLines(self.text(), arguments.True(0)));
}

template <bool from_right>
absl::StatusOr<Value> PartitionMethod(Run& run, const Value& self, const Arguments& arguments) {
  if (!arguments.at(0).is(Kind::kText)) return InvalidArgument("must be str, not ", TypeName(arguments.at(0)));
  const std::string_view text = self.text(), separator = arguments.at(0).text();
  if (separator.empty()) return InvalidArgument("empty separator");
  const size_t at = from_right ? FindLastText(text, separator) : FindText(text, separator);
  if (at != std::string_view::npos) {
    return Parts(run, self, Flavor::kTuple,
                 {text.substr(0, at), text.substr(at, separator.size()), text.substr(at + separator.size())});
  }
  if (from_right) return Parts(run, self, Flavor::kTuple, {"", "", text});
  return Parts(run, self, Flavor::kTuple, {text, "", ""});
}

absl::StatusOr<Value> ReplaceMethod(Run& run, const Value& self, const Arguments& arguments) {
  for (const size_t i : {0, 1}) {
    if (!arguments.at(i).is(Kind::kText)) {
      return InvalidArgument("replace() argument ", i + 1, " must be str, not ", TypeName(arguments.at(i)));
    }
  }
  MOED_ASSIGN_OR_RETURN(const Integer most, arguments.Whole(2, -1));
  const Text& by = arguments.at(1).as<Text>();
  const MarkedText new_text = self.as<Text>().markup && !by.markup ? Escaped(by) : MarkedText::PartOf(by, by.text);
  return ReplaceIn(run, self, arguments.at(0).text(), new_text, Narrow(most));
}

template <bool at_start>
absl::StatusOr<Value> AffixMethod(Run&, const Value& self, const Arguments& arguments) {
  const Value& wanted = arguments.at(0);
  const bool many = wanted.is(Kind::kSequence) && wanted.as<Sequence>().flavor == Flavor::kTuple;
  const std::vector<Value> affixes = many ? wanted.items() : std::vector<Value>{wanted};
  std::string_view text = self.text();
  const auto size = static_cast<Integer>(self.as<Text>().characters);
  const auto offset = [&](Integer index) {
    return OffsetOf(text, static_cast<size_t>(std::clamp<Integer>(index < 0 ? index + size : index, 0, size)));
  };
  MOED_ASSIGN_OR_RETURN(const Integer start, arguments.Whole(1, 0));
  MOED_ASSIGN_OR_RETURN(const Integer stop, arguments.Whole(2, size));
  const size_t begin = offset(start), end = offset(stop);
  for (const Value& affix : affixes) {
    if (!affix.is(Kind::kText)) {
      const std::string_view name = at_start ? "startswith" : "endswith";
      return InvalidArgument(name, " first arg must be str or a tuple of str, not ", TypeName(affix));
    }
    if (begin > end || start > size) continue;
    const std::string_view part = text.substr(begin, end - begin);
    if (at_start ? part.starts_with(affix.text()) : part.ends_with(affix.text())) return Value(true);
  }
  return Value(false);
}

template <bool from_right>
absl::StatusOr<std::optional<Integer>> Search(Run& run, const Value& self, const Arguments& arguments) {
  if (!arguments.at(0).is(Kind::kText)) return InvalidArgument("must be str, not ", TypeName(arguments.at(0)));
  const std::string_view text = self.text(), wanted = arguments.at(0).text();
  const auto size = static_cast<Integer>(self.as<Text>().characters);
  const auto clamped = [&](Integer index) { return std::clamp<Integer>(index < 0 ? index + size : index, 0, size + 1); };
  Integer start = 0, stop = size;
  if (arguments.FindSome(1) != nullptr) {
    MOED_ASSIGN_OR_RETURN(start, arguments.Whole(1));
  }
  if (arguments.FindSome(2) != nullptr) {
    MOED_ASSIGN_OR_RETURN(stop, arguments.Whole(2));
  }
  start = clamped(start);
  stop = std::min(clamped(stop), size);
  if (start > stop) return std::nullopt;
  MOED_RETURN_IF_ERROR(run.WorkOn(text.size()));
  const size_t begin = OffsetOf(text, static_cast<size_t>(start)), end = OffsetOf(text, static_cast<size_t>(stop));
  const std::string_view part = text.substr(begin, end - begin);
  const size_t found = from_right ? FindLastText(part, wanted) : FindText(part, wanted);
  if (found == std::string_view::npos) return std::nullopt;
  return start + static_cast<Integer>(CountCharacters(part.substr(0, found)));
}

template <bool from_right>
absl::StatusOr<Value> FindMethod(Run& run, const Value& self, const Arguments& arguments) {
  MOED_ASSIGN_OR_RETURN(const auto found, Search<from_right>(run, self, arguments));
  return Value(found.value_or(-1));
}

template <bool from_right>
absl::StatusOr<Value> IndexMethod(Run& run, const Value& self, const Arguments& arguments) {
  MOED_ASSIGN_OR_RETURN(const auto found, Search<from_right>(run, self, arguments));
  if (!found) return InvalidArgument("substring not found");
  return Value(*found);
}

absl::StatusOr<Value> CountMethod(Run&, const Value& self, const Arguments& arguments) {
  if (!arguments.at(0).is(Kind::kText)) return InvalidArgument("must be str, not ", TypeName(arguments.at(0)));
  const std::string& wanted = arguments.at(0).text();
  if (wanted.empty()) return Value(static_cast<Integer>(self.as<Text>().characters) + 1);
  Integer count = 0;
  for (size_t at = FindText(self.text(), wanted); at != std::string::npos; at = FindText(self.text(), wanted, at + wanted.size()))
    ++count;
  return Value(count);
}

absl::StatusOr<Value> JoinMethod(Run& run, const Value& self, const Arguments& arguments) {
  if (!IsIterable(arguments.at(0))) return InvalidArgument("can only join an iterable");
  MOED_ASSIGN_OR_RETURN(const auto items, Elements(run, arguments.at(0)));
  const bool markup = self.as<Text>().markup;
  MarkedText out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is(Kind::kText)) {
      return InvalidArgument("sequence item ", i, ": expected str instance, ", TypeName(items[i]), " found");
    }
    if (i > 0) out.Append(self.as<Text>());
    const Text& item = items[i].as<Text>();
    if (markup && !item.markup) {
      out.Append(Escaped(item));
    } else {
      out.Append(item);
    }
    MOED_RETURN_IF_ERROR(run.Fits(out.bytes()));
  }
  return Same(run, self, std::move(out));
}

enum class Where : uint8_t { kLeft, kRight, kCenter };

absl::StatusOr<Value> Padded(Run& run, const Value& self, Integer width, const MarkedText& fill, Where where) {
  const auto size = static_cast<Integer>(self.as<Text>().characters);
  if (width <= size) return SamePart(run, self, self.text());
  constexpr Integer kMostWidth = Integer{1} << 40;
  const Integer missing = std::min(width, kMostWidth) - size;
  MOED_RETURN_IF_ERROR(run.Fits(static_cast<size_t>(missing) * fill.bytes() + self.text().size()));
  // Python's str.center puts the odd one to the left where the width is odd.
  const Integer left = where == Where::kLeft ? 0 : where == Where::kRight ? missing : missing / 2 + (missing & width & 1);
  MarkedText out;
  for (Integer i = 0; i < left; ++i) out.Append(fill);
  out.Append(self.as<Text>());
  for (Integer i = left; i < missing; ++i) out.Append(fill);
  return Same(run, self, std::move(out));
}

template <Where where>
absl::StatusOr<Value> JustifyMethod(Run& run, const Value& self, const Arguments& arguments) {
  MOED_ASSIGN_OR_RETURN(const Integer width, arguments.Whole(0));
  MOED_ASSIGN_OR_RETURN(const std::string fill, arguments.Text(1, " "));
  if (CountCharacters(fill) != 1) return InvalidArgument("The fill character must be exactly one character long");
  const bool foreign = arguments.Find(1) != nullptr && HoldsForeign(arguments.at(1));
  return Padded(run, self, width, MarkedText::Whole(fill, foreign), where);
}

absl::StatusOr<Value> ZeroFillMethod(Run& run, const Value& self, const Arguments& arguments) {
  MOED_ASSIGN_OR_RETURN(const Integer width, arguments.Whole(0));
  const std::string& text = self.text();
  const bool sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  MOED_ASSIGN_OR_RETURN(const Value digits, run.NewOwnText(sign ? text.substr(1) : text));
  MOED_ASSIGN_OR_RETURN(const Value padded, Padded(run, digits, width - (sign ? 1 : 0), MarkedText::Own("0"), Where::kRight));
  return SameWhole(run, self, (sign ? text.substr(0, 1) : "") + padded.text());
}

absl::StatusOr<Value> ExpandTabsMethod(Run& run, const Value& self, const Arguments& arguments) {
  MOED_ASSIGN_OR_RETURN(const Integer asked, arguments.Whole(0, 8));
  const auto tab = static_cast<size_t>(std::clamp<Integer>(asked, 0, 1 << 20));
  std::string out;
  size_t column = 0;
  for (const char c : self.text()) {
    if (c == '\t') {
      const size_t spaces = tab == 0 ? 0 : tab - column % tab;
      MOED_RETURN_IF_ERROR(run.Fits(out.size() + spaces));
      out.append(spaces, ' ');
      column += spaces;
      continue;
    }
    out += c;
    if (!IsContinuation(c)) column = c == '\n' || c == '\r' ? 0 : column + 1;
  }
  return SameWhole(run, self, std::move(out));
}

template <bool at_start>
absl::StatusOr<Value> RemoveAffixMethod(Run& run, const Value& self, const Arguments& arguments) {
  MOED_ASSIGN_OR_RETURN(const std::string affix, arguments.Text(0));
  std::string_view text = self.text();
  if (at_start && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!at_start && text.ends_with(affix)) text.remove_suffix(affix.size());
  return SamePart(run, self, text);
}

absl::StatusOr<Value> FormatMethod(Run& run, const Value& self, const Arguments& arguments) {
  return FormatBraces(run, self, arguments.call());
}

constexpr Method kMethods[] = {
    {"capitalize", "", Mapped<Capitalized>},
    {"casefold", "", Mapped<CaseFolded>},
    {"center", "width fillchar?", JustifyMethod<Where::kCenter>},
    {"count", "sub", CountMethod},
    {"endswith", "suffix start? end?", AffixMethod<false>},
    {"expandtabs", "tabsize?", ExpandTabsMethod},
    {"find", "sub start? end?", FindMethod<false>},
    {"format", "*", FormatMethod},
    {"index", "sub start? end?", IndexMethod<false>},
    {"isalnum", "", Asked<IsAlphanumeric>},
    {"isalpha", "", Asked<IsAlphabetic>},
    {"isascii", "", Asked<IsAscii>},
    {"isdecimal", "", Asked<IsDecimal>},
    {"isdigit", "", Asked<IsDigit>},
    {"isidentifier", "", Asked<IsIdentifier>},
    {"islower", "", Asked<IsLower>},
    {"isnumeric", "", Asked<IsNumeric>},
    {"isprintable", "", Asked<IsAllPrintable>},
    {"isspace", "", Asked<IsAllSpace>},
    {"istitle", "", Asked<IsTitle>},
    {"isupper", "", Asked<IsUpper>},
    {"join", "iterable", JoinMethod},
    {"ljust", "width fillchar?", JustifyMethod<Where::kLeft>},
    {"lower", "", Mapped<Lower>},
    {"lstrip", "chars?", StripMethod<Side::kLeft>},
    {"partition", "sep", PartitionMethod<false>},
    {"removeprefix", "prefix", RemoveAffixMethod<true>},
    {"removesuffix", "suffix", RemoveAffixMethod<false>},
    {"replace", "old new count?", ReplaceMethod},
    {"rfind", "sub start? end?", FindMethod<true>},
    {"rindex", "sub start? end?", IndexMethod<true>},
    {"rjust", "width fillchar?", JustifyMethod<Where::kRight>},
    {"rpartition", "sep", PartitionMethod<true>},
    {"rsplit", "sep? maxsplit?", SplitMethod<true>},
    {"rstrip", "chars?", StripMethod<Side::kRight>},
    {"split", "sep? maxsplit?", SplitMethod<false>},
    {"splitlines", "keepends?", SplitLinesMethod},
    {"startswith", "prefix start? end?", AffixMethod<true>},
    {"strip", "chars?", StripMethod<Side::kBoth>},
    {"swapcase", "", Mapped<CaseSwapped>},
    {"title", "", Mapped<Title>},
    {"upper", "", Mapped<Upper>},
    {"zfill", "width", ZeroFillMethod},
};

}  // namespace

const Method* FindTextMethod(std::string_view name) {
  const auto found = std::find_if(std::begin(kMethods), std::end(kMethods), [&](const Method& row) { return row.name == name; });
  return found == std::end(kMethods) ? nullptr : found;
}

absl::StatusOr<Value> ReplaceIn(Run& run, const Value& value, std::string_view old, const MarkedText& by, int64_t most) {
  const Text& from = value.as<Text>();
  const std::string_view text = from.text;
  MarkedText out;
  size_t at = 0;
  for (; most != 0; --most) {
    const size_t found = FindText(text, old, at);
    if (found == std::string_view::npos) break;
    out.AppendPart(from, text.substr(at, found - at));
    out.Append(by);
    at = found + old.size();
    MOED_RETURN_IF_ERROR(run.Fits(out.bytes()));
    if (!old.empty()) continue;
    if (at >= text.size()) return run.NewText(std::move(out), from.markup);
    const size_t bytes = FirstCharacterBytes(text.substr(at));
    out.AppendPart(from, text.substr(at, bytes));
    at += bytes;
  }
  out.AppendPart(from, text.substr(at));
  MOED_RETURN_IF_ERROR(run.Fits(out.bytes()));
  return run.NewText(std::move(out), from.markup);
}

}  // namespace moed::chat
