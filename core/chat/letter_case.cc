#include "core/chat/letter_case.h"

#include <utf8proc.h>

#include <algorithm>

#include "core/chat/python_text.h"
#include "core/chat/special_casing.h"
#include "core/tokenizer/unicode.h"

namespace moed::chat {
namespace {

constexpr char32_t kSigma = 0x3A3, kSmallSigma = 0x3C3, kFinalSigma = 0x3C2;

std::u32string Characters(std::string_view text) {
  std::u32string characters;
  for (size_t at = 0; at < text.size(); at += FirstCharacterBytes(text.substr(at))) characters += FirstCharacter(text.substr(at));
  return characters;
}

void Append(std::u32string_view characters, std::string& out) {
  for (const char32_t c : characters) AppendUtf8(c, out);
}

utf8proc_category_t CategoryOf(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }
char32_t SimpleUpper(char32_t c) { return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))); }
char32_t SimpleLower(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))); }
char32_t SimpleTitle(char32_t c) { return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))); }

const SpecialCase* Special(char32_t c) {
  if (c < kSpecialCases[0].character) return nullptr;
  const auto found = std::lower_bound(std::begin(kSpecialCases), std::end(kSpecialCases), c,
                                      [](const SpecialCase& row, char32_t wanted) { return row.character < wanted; });
  return found != std::end(kSpecialCases) && found->character == c ? found : nullptr;
}

void AppendUpper(char32_t c, std::string& out) {
  const SpecialCase* special = Special(c);
  special != nullptr ? Append(special->upper, out) : AppendUtf8(SimpleUpper(c), out);
}

void AppendTitle(char32_t c, std::string& out) {
  const SpecialCase* special = Special(c);
  special != nullptr ? Append(special->title, out) : AppendUtf8(SimpleTitle(c), out);
}

bool IsLowerCharacter(char32_t c) {
  return CategoryOf(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA || (c >= 0x2170 && c <= 0x217F) ||
         (c >= 0x24D0 && c <= 0x24E9);
}
bool IsUpperCharacter(char32_t c) {
  return CategoryOf(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) || (c >= 0x24B6 && c <= 0x24CF);
}
bool IsTitleCharacter(char32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_LT; }
bool IsCased(char32_t c) { return IsLowerCharacter(c) || IsUpperCharacter(c) || IsTitleCharacter(c); }

bool IsIgnoredByCase(char32_t c) {
  if (c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xB7 || c == 0x2019) return true;
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return false;
  }
}

// Unicode's Final_Sigma: a letter before it and none behind it.
bool EndsWord(std::u32string_view text, size_t at) {
  size_t before = at;
  while (before > 0 && IsIgnoredByCase(text[before - 1])) --before;
  if (before == 0 || !IsCased(text[before - 1])) return false;
  size_t after = at + 1;
  while (after < text.size() && IsIgnoredByCase(text[after])) ++after;
  return after == text.size() || !IsCased(text[after]);
}

void AppendLower(std::u32string_view text, size_t at, std::string& out) {
  constexpr char32_t kCapitalIWithDot = 0x130, kDotAbove = 0x307;
  const char32_t c = text[at];
  if (c == kSigma) return AppendUtf8(EndsWord(text, at) ? kFinalSigma : kSmallSigma, out);
  if (c != kCapitalIWithDot) return AppendUtf8(SimpleLower(c), out);
  AppendUtf8('i', out);
  AppendUtf8(kDotAbove, out);
}

bool IsDigitCharacter(char32_t c) {
  return CategoryOf(c) == UTF8PROC_CATEGORY_ND || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468);
}
bool IsLetter(char32_t c) {
  const auto category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool IsNumericCharacter(char32_t c) {
  const auto category = CategoryOf(c);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}

template <class Predicate>
bool All(std::string_view text, Predicate predicate) {
  for (size_t at = 0; at < text.size(); at += FirstCharacterBytes(text.substr(at))) {
    if (!predicate(FirstCharacter(text.substr(at)))) return false;
  }
  return true;
}

bool HasCased(std::string_view text) {
  return !All(text, [](char32_t c) { return !IsCased(c); });
}

}  // namespace

std::string Upper(std::string_view text) {
  std::string out;
  for (const char32_t c : Characters(text)) AppendUpper(c, out);
  return out;
}

std::string Lower(std::string_view text) {
  std::string out;
  const std::u32string characters = Characters(text);
  for (size_t i = 0; i < characters.size(); ++i) AppendLower(characters, i, out);
  return out;
}

std::string Title(std::string_view text) {
  std::string out;
  const std::u32string characters = Characters(text);
  bool within_word = false;
  for (size_t i = 0; i < characters.size(); ++i) {
    within_word ? AppendLower(characters, i, out) : AppendTitle(characters[i], out);
    within_word = IsCased(characters[i]);
  }
  return out;
}

std::string Capitalized(std::string_view text) {
  std::string out;
  const std::u32string characters = Characters(text);
  for (size_t i = 0; i < characters.size(); ++i) i == 0 ? AppendTitle(characters[0], out) : AppendLower(characters, i, out);
  return out;
}

std::string CaseFolded(std::string_view text) {
  std::string out;
  for (const char32_t c : Characters(text)) {
    utf8proc_int32_t folded[8];
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 8, UTF8PROC_CASEFOLD, &boundary);
    for (utf8proc_ssize_t i = 0; i < count; ++i) AppendUtf8(static_cast<char32_t>(folded[i]), out);
  }
  return out;
}

std::string CaseSwapped(std::string_view text) {
  std::string out;
  const std::u32string characters = Characters(text);
  for (size_t i = 0; i < characters.size(); ++i) {
    if (IsUpperCharacter(characters[i])) {
      AppendLower(characters, i, out);
    } else if (IsLowerCharacter(characters[i])) {
      AppendUpper(characters[i], out);
    } else {
      AppendUtf8(characters[i], out);
    }
  }
  return out;
}

bool IsUpper(std::string_view text) {
  return HasCased(text) && All(text, [](char32_t c) { return !IsLowerCharacter(c) && !IsTitleCharacter(c); });
}

bool IsLower(std::string_view text) {
  return HasCased(text) && All(text, [](char32_t c) { return !IsUpperCharacter(c) && !IsTitleCharacter(c); });
}

bool IsTitle(std::string_view text) {
  bool within_word = false;
  return HasCased(text) && All(text, [&](char32_t c) {
           const bool begins = IsUpperCharacter(c) || IsTitleCharacter(c);
           const bool fits = begins ? !within_word : !IsLowerCharacter(c) || within_word;
           within_word = IsCased(c);
           return fits;
         });
}

bool IsAlphabetic(std::string_view text) { return !text.empty() && All(text, IsLetter); }
bool IsDecimal(std::string_view text) {
  return !text.empty() && All(text, [](char32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_ND; });
}
bool IsDigit(std::string_view text) { return !text.empty() && All(text, IsDigitCharacter); }
bool IsNumeric(std::string_view text) { return !text.empty() && All(text, IsNumericCharacter); }
bool IsAlphanumeric(std::string_view text) {
  return !text.empty() && All(text, [](char32_t c) { return IsLetter(c) || IsNumericCharacter(c); });
}
bool IsAllSpace(std::string_view text) { return !text.empty() && All(text, IsSpace); }
bool IsAllPrintable(std::string_view text) { return All(text, IsPrintable); }

bool IsIdentifier(std::string_view text) {
  if (text.empty() || IsNumericCharacter(FirstCharacter(text))) return false;
  return All(text, [](char32_t c) {
    const auto category = CategoryOf(c);
    return c == '_' || IsLetter(c) || category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
           category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_PC;
  });
}

}  // namespace moed::chat
