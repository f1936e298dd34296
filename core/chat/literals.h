// Numbers and texts as they are written in a template.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace moed::chat {

// Of what `text` begins with; 0 where it begins with none.
size_t FloatBytes(std::string_view text, bool after_point);  // 1.5, 1e5, 1_0.5e-3
size_t IntegerBytes(std::string_view text);                  // 17, 1_000, 0x1F
size_t LiteralBytes(std::string_view text);                  // 'it' or "it", the quotes included

int BaseOf(std::string_view integer);
// Python's escapes replaced. INVALID_ARGUMENT for one that is cut off or no character.
absl::StatusOr<std::string> Unescaped(std::string_view literal);

}  // namespace moed::chat
