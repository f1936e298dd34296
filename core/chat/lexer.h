// A template's text cut into tokens, with trim_blocks, lstrip_blocks and the signs of white-space control applied.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/chat/value.h"

namespace moed::chat {

enum class TokenKind : uint8_t {
  kData,
  kBlockBegin,
  kBlockEnd,
  kPrintBegin,
  kPrintEnd,
  kName,
  kText,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind;
  int line;
  std::string text;  // of an operator: itself; of a text: what it stands for
  Integer integer = 0;
  double number = 0;
};

// INVALID_ARGUMENT with the line for what no token begins with. The last token is kEnd. `source` is valid UTF-8.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace moed::chat
