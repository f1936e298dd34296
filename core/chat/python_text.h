// What Python does with texts, on UTF-8 that is valid. Indexes and counts are of characters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/utf8.h"

namespace moed::chat {

// The byte at which character `index` begins; text.size() where there are fewer.
size_t OffsetOf(std::string_view text, size_t index);

// Linear in both lengths. npos where it is not.
size_t FindText(std::string_view text, std::string_view wanted, size_t from_byte = 0);
size_t FindLastText(std::string_view text, std::string_view wanted);

bool IsSpace(char32_t character);  // Python's str.isspace, which is wider than Unicode's White_Space
bool IsPrintable(char32_t character);

enum class Side : uint8_t { kBoth, kLeft, kRight };
// Without white space, or without any of `characters`, at its ends.
std::string_view Strip(std::string_view text, std::optional<std::string_view> characters, Side side);

constexpr int64_t kAllSplits = -1;
// By runs of white space, which leave no empty parts.
std::vector<std::string_view> SplitAtSpace(std::string_view text, int64_t most, bool from_right);
// By `separator`, not empty.
std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator, int64_t most, bool from_right);
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

std::string QuotedText(std::string_view text);       // repr: 'it', "it's", 'a\n'
std::string AsciiQuotedText(std::string_view text);  // ascii()
std::string EscapedForHtml(std::string_view text);

std::string IntegerText(__int128 value);
std::string FloatText(double value);  // repr: the shortest that reads back
// As int(text, base) and float(text) read them: white space around, underscores between digits.
std::optional<__int128> ParseInteger(std::string_view text, int base);
std::optional<double> ParseFloat(std::string_view text);

}  // namespace moed::chat
