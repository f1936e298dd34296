#include "core/tokenizer/precompiled_map.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/status.h"
#include "core/base/utf8.h"
#include "core/tokenizer/unicode.h"

namespace moed {
namespace {

constexpr size_t kLongestString = 256;  // bytes that anything may become
constexpr size_t kLongestGrapheme = 6;  // that is looked up at once; longer ones go character by character

// A unit of the trie.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) == 1; }
uint32_t Value(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t Label(uint32_t unit) { return unit & 0x800000FF; }
uint32_t Offset(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

}  // namespace

absl::StatusOr<PrecompiledMap> PrecompiledMap::Make(std::string bytes) {
  uint32_t trie_bytes = 0;
  if (bytes.size() < sizeof(trie_bytes)) return InvalidArgument("a compiled map of ", bytes.size(), " bytes");
  std::memcpy(&trie_bytes, bytes.data(), sizeof(trie_bytes));
  const size_t rest = bytes.size() - sizeof(trie_bytes);
  if (trie_bytes == 0 || trie_bytes % sizeof(uint32_t) != 0 || trie_bytes > rest) {
    return InvalidArgument("a compiled map of ", bytes.size(), " bytes with a trie of ", trie_bytes);
  }
  const std::string_view strings = std::string_view(bytes).substr(sizeof(trie_bytes) + trie_bytes);
  if (const auto bad = FirstInvalidByte(strings)) {
    return InvalidArgument("a compiled map whose strings are not UTF-8 at byte ", *bad);
  }
  for (size_t begin = 0, end; begin < strings.size(); begin = end + 1) {
    end = std::min(strings.find('\0', begin), strings.size());
    if (end - begin > kLongestString) {
      return InvalidArgument("a compiled map with a string of ", end - begin, " bytes, at most ", kLongestString, " are allowed");
    }
  }
  return PrecompiledMap(std::move(bytes), trie_bytes);
}

std::optional<std::string_view> PrecompiledMap::Find(std::string_view text) const {
  const U32Array trie = units();
  const std::string_view strings = std::string_view(bytes_).substr(sizeof(uint32_t) + trie_bytes_);
  uint32_t node = Offset(trie[0]);
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte == 0) break;
    node ^= byte;
    if (node >= trie.size() || Label(trie[node]) != byte) break;
    const uint32_t unit = trie[node];
    node ^= Offset(unit);
    if (!HasLeaf(unit)) continue;
    const uint32_t begin = node < trie.size() ? Value(trie[node]) : UINT32_MAX;
    if (begin >= strings.size() || (begin > 0 && IsContinuation(strings[begin]))) return std::nullopt;
    return strings.substr(begin, strings.find('\0', begin) - begin);
  }
  return std::nullopt;
}

void PrecompiledMap::AppendGrapheme(std::string_view grapheme, std::string& out) const {
  if (grapheme.size() < kLongestGrapheme) {
    if (const auto found = Find(grapheme)) {
      out += *found;
      return;
    }
  }
  for (size_t at = 0, bytes; at < grapheme.size(); at += bytes) {
    bytes = FirstCharacterBytes(grapheme.substr(at));
    const std::string_view character = grapheme.substr(at, bytes);
    out += Find(character).value_or(character);
  }
}

std::string PrecompiledMap::Apply(std::string_view text, size_t most) const {
  std::string mapped;
  mapped.reserve(text.size());
  size_t begin = 0;
  utf8proc_int32_t state = 0, previous = -1;
  for (size_t at = 0; at < text.size() && mapped.size() <= most; at += FirstCharacterBytes(text.substr(at))) {
    const auto character = static_cast<utf8proc_int32_t>(FirstCharacter(text.substr(at)));
    if (previous >= 0 && utf8proc_grapheme_break_stateful(previous, character, &state)) {
      AppendGrapheme(text.substr(begin, at - begin), mapped);
      begin = at;
    }
    previous = character;
  }
  if (begin < text.size() && mapped.size() <= most) AppendGrapheme(text.substr(begin), mapped);
  return mapped;
}

}  // namespace moed
