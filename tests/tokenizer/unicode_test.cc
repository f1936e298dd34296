#include "core/tokenizer/unicode.h"

#include <gtest/gtest.h>

#include <set>

#include "core/base/status.h"
#include "core/tokenizer/normalizer.h"

namespace moed {
namespace {

TEST(Unicode, CharactersSurviveUtf8) {
  for (char32_t character = 0; character <= 0x10FFFF; character += 1 + character / 97) {
    if (character >= 0xD800 && character <= 0xDFFF) continue;
    std::string text;
    AppendUtf8(character, text);
    EXPECT_FALSE(FirstInvalidByte(text).has_value());
    EXPECT_EQ(FirstCharacter(text), character);
    EXPECT_EQ(FirstCharacterBytes(text), text.size());
    EXPECT_EQ(LastCharacterBytes(StrCat("x", text)), text.size());
    for (size_t bytes = 1; bytes < text.size(); ++bytes) {
      const Utf8Unit unit = FirstUtf8Unit(text.substr(0, bytes));
      EXPECT_EQ(unit.kind, Utf8Unit::Kind::kIncomplete);
      EXPECT_EQ(unit.bytes, bytes);
    }
  }
}

// The examples of the Unicode standard, chapter 3, "U+FFFD Substitution of Maximal Subparts".
TEST(Unicode, InvalidPartsAreReplacedOneByOne) {
  const auto replaced = [](std::string_view bytes) {
    std::string text;
    EXPECT_EQ(AppendReplacingInvalid(bytes, text), bytes.size());
    return text;
  };
  EXPECT_EQ(replaced("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
                     "A"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(replaced("\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
                     "A"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(replaced("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                     "A"),
            "\uFFFD\uFFFD\uFFFD\uFFFDA");
}

TEST(Unicode, IncompleteEndsAreLeft) {
  std::string text;
  EXPECT_EQ(AppendReplacingInvalid("a\xF0\x9F\x98", text), 1u);
  EXPECT_EQ(text, "a");
}

TEST(Unicode, TheByteAlphabetIsOneToOne) {
  std::set<std::string> spelled;
  for (int byte = 0; byte < 256; ++byte) {
    std::string character;
    AppendUtf8(ByteLevelCharacter(static_cast<uint8_t>(byte)), character);
    EXPECT_TRUE(spelled.insert(character).second);
    EXPECT_EQ(FromByteLevel(character), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(FromByteLevel("Ġa"), " a");
  EXPECT_EQ(FromByteLevel(" a"), std::nullopt);
  EXPECT_EQ(FromByteLevel("中"), std::nullopt);
}

TEST(Unicode, CompositionTouchesOnlyWhatCombines) {
  EXPECT_EQ(ComposeCanonically(""), "");
  EXPECT_EQ(ComposeCanonically("plain text"), "plain text");
  EXPECT_EQ(ComposeCanonically("xe\u0301y"), "x\u00E9y");
  EXPECT_EQ(ComposeCanonically("\u0301"), "\u0301");
  EXPECT_EQ(ComposeCanonically("e\u0316\u0301"), "\u00E9\u0316");
  EXPECT_EQ(ComposeCanonically("\u1112\u1161\u11AB"), "\uD55C");
  EXPECT_EQ(ComposeCanonically("\u212B"), "\u00C5");
  EXPECT_EQ(ComposeCanonically("\u0958"), "\u0915\u093C");  // excluded from composition
  EXPECT_EQ(ComposeCanonically("a\u0301b\u0301"), "\u00E1b\u0301");
  EXPECT_EQ(ComposeCanonically("a\u07FD\u0301"), "a\u07FD\u0301");  // a mark of Unicode 11
  EXPECT_EQ(ComposeCanonically("\u1100\u1161\u11A7"), "\uAC00\u11A7");
}

}  // namespace
}  // namespace moed
