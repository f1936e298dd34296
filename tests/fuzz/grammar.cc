// The first byte says whether a schema or an expression follows, up to a zero byte; then comes a text. Whatever they are,
// compiling and following end, within the matcher's memory; what follows a schema to an end is JSON.
#include <nlohmann/json.hpp>

#include "core/base/utf8.h"
#include "core/grammar/matcher.h"
#include "tests/fuzz/foreign_bytes.h"

using namespace moed;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > 4096) return 0;
  static const auto& kTrie = *new grammar::VocabularyTrie({{"a", 0}, {"ab", 1}, {"\"", 2}, {"{\"", 3}, {"1", 4}, {"\xc3", 5}}, 6);
  const bool is_schema = (data[0] & 1) != 0;
  const std::string_view given = fuzz::Text(data + 1, size - 1);
  const size_t zero = std::min(given.find('\0'), given.size());
  const std::string_view source = given.substr(0, zero);
  const auto grammar = is_schema ? grammar::Grammar::FromJsonSchema(source) : grammar::Grammar::FromRegex(source);
  if (!grammar.ok()) {
    MOED_CHECK(absl::IsInvalidArgument(grammar.status()));
    return 0;
  }
  grammar::Matcher matcher(*grammar, kTrie, 64 << 10);
  const std::string_view text = zero < given.size() ? given.substr(zero + 1) : "";
  for (const char byte : text) {
    (void)matcher.Allowed();
    if (!matcher.Accept({&byte, 1}).ok()) return 0;
  }
  if (is_schema && matcher.MayEnd() && IsValidUtf8(text)) MOED_CHECK(nlohmann::json::accept(text));
  return 0;
}
