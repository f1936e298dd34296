#include "core/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "core/base/status.h"
#include "core/base/utf8.h"
#include "core/tokenizer/unicode.h"

namespace moed {
namespace {

// Characters below U+0300 are composed, have no combining class and never join the character before them: text may be cut
// before each, and their lead bytes are below this one.
constexpr uint8_t kFirstLeadThatCombines = 0xCC;

bool MayCombine(char byte) { return static_cast<uint8_t>(byte) >= kFirstLeadThatCombines; }

struct CharacterRange {
  char32_t first, last;
};

// The reference's tables are those of Unicode 9: what combines since then is to it a character that joins nothing.
constexpr std::array<CharacterRange, 39> kNewerCombining = {
    {{0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},     {0xd3b, 0xd3c},
     {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},   {0x10d24, 0x10d27},
     {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b},
     {0x1145e, 0x1145e}, {0x11839, 0x1183a}, {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193d, 0x1193e},
     {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42},
     {0x11d44, 0x11d45}, {0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x16ff0, 0x16ff1}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136},
     {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}}};

// utf8proc 2.8 takes U+11A7, the code before the first trailing jamo, for one and drops it.
constexpr char32_t kBeforeTrailingJamo = 0x11A7;

bool MayJoin(char32_t character) {
  if (character == kBeforeTrailingJamo) return false;
  const auto range = std::ranges::lower_bound(kNewerCombining, character, {}, &CharacterRange::last);
  return range == kNewerCombining.end() || character < range->first;
}

int CombiningClass(int32_t character) { return utf8proc_get_property(character)->combining_class; }

std::vector<int32_t> Decompose(std::string_view text) {
  constexpr int kLongestDecomposition = 32;
  std::vector<int32_t> characters;
  characters.reserve(text.size() / 2 + 1);
  for (size_t at = 0; at < text.size(); at += FirstCharacterBytes(text.substr(at))) {
    const auto character = static_cast<int32_t>(FirstCharacter(text.substr(at)));
    std::array<int32_t, kLongestDecomposition> parts;
    int boundary = 0;
    const auto count = utf8proc_decompose_char(character, parts.data(), parts.size(), UTF8PROC_DECOMPOSE, &boundary);
    if (count > 0 && count <= kLongestDecomposition) {
      characters.insert(characters.end(), parts.begin(), parts.begin() + count);
    } else {
      characters.push_back(character);
    }
  }
  return characters;
}

// Marks between two starters into the order of their classes.
void OrderCanonically(std::vector<int32_t>& characters) {
  const auto is_starter = [](int32_t character) { return CombiningClass(character) == 0; };
  for (auto begin = characters.begin(); begin != characters.end();) {
    begin = std::find_if_not(begin, characters.end(), is_starter);
    const auto end = std::find_if(begin, characters.end(), is_starter);
    std::stable_sort(begin, end, [](int32_t a, int32_t b) { return CombiningClass(a) < CombiningClass(b); });
    begin = end;
  }
}

void AppendComposedPart(std::string_view text, std::string& out) {
  std::vector<int32_t> characters = Decompose(text);
  OrderCanonically(characters);
  const auto count = utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
                                              static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  for (utf8proc_ssize_t i = 0; i < count; ++i) AppendUtf8(static_cast<char32_t>(characters[i]), out);
}

void AppendComposed(std::string_view text, std::string& out) {
  size_t part = 0;
  for (size_t at = 0, bytes; at < text.size(); at += bytes) {
    bytes = FirstCharacterBytes(text.substr(at));
    if (MayJoin(FirstCharacter(text.substr(at)))) continue;
    AppendComposedPart(text.substr(part, at - part), out);
    out += text.substr(at, bytes);
    part = at + bytes;
  }
  AppendComposedPart(text.substr(part), out);
}

}  // namespace

std::string ComposeCanonically(std::string_view text) {
  std::string composed;
  composed.reserve(text.size());
  size_t done = 0;
  while (done < text.size()) {
    size_t begin = std::find_if(text.begin() + done, text.end(), MayCombine) - text.begin();
    size_t end = begin;
    if (begin < text.size()) {
      if (begin > done) begin -= LastCharacterBytes(text.substr(done, begin - done));
      while (end < text.size() && (MayCombine(text[end]) || IsContinuation(text[end]))) ++end;
    }
    composed += text.substr(done, begin - done);
    AppendComposed(text.substr(begin, end - begin), composed);
    done = end;
  }
  return composed;
}

namespace {

// Of a text by all steps, where it is no short one; core/serving counts what it takes.
constexpr size_t kMostGrowth = 4, kShortText = 1024;

size_t MostBytes(std::string_view text) { return kMostGrowth * text.size() + kShortText; }

absl::Status Grown(std::string_view text) {
  return InvalidArgument("text of ", text.size(), " bytes has more than ", MostBytes(text), " when it is normalised, ",
                         kMostGrowth, " times as many");
}

std::string_view WithoutWhiteSpaceBehind(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = LastCharacterBytes(text);
    if (!IsWhiteSpace(FirstCharacter(text.substr(text.size() - bytes)))) break;
    text.remove_suffix(bytes);
  }
  return text;
}

}  // namespace

absl::StatusOr<Normalizer> Normalizer::Make(std::span<const NormalizerStep> steps) {
  Normalizer normalizer;
  for (const NormalizerStep& step : steps) {
    const bool precompiled = step.kind == NormalizerStep::Kind::kPrecompiled;
    Step& made = normalizer.steps_.emplace_back(Step{step.kind, precompiled ? "" : step.content, {}, {}});
    if (precompiled) {
      MOED_ASSIGN_OR_RETURN(PrecompiledMap map, PrecompiledMap::Make(step.content));
      made.map.push_back(std::move(map));
    }
    if (step.kind != NormalizerStep::Kind::kReplace) continue;
    MOED_ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::Compile(step.pattern, step.literal));
    made.pattern.push_back(std::move(pattern));
  }
  return normalizer;
}

absl::StatusOr<std::string> Normalizer::Replace(const Step& step, std::string_view text, size_t most) {
  const TextPattern::Searcher searcher(step.pattern[0]);
  std::string replaced;
  replaced.reserve(text.size());
  size_t done = 0;
  while (true) {
    MOED_ASSIGN_OR_RETURN(const auto match, searcher.Find(text, done));
    if (!match || replaced.size() > most) break;
    replaced += text.substr(done, match->begin - done);
    replaced += step.content;
    done = match->end;
  }
  replaced += text.substr(done);
  return replaced;
}

absl::StatusOr<std::string> Normalizer::Apply(std::string_view text) const {
  std::string normalized(text);
  for (const Step& step : steps_) {
    switch (step.kind) {
      case NormalizerStep::Kind::kNfc:
        normalized = ComposeCanonically(normalized);
        break;
      case NormalizerStep::Kind::kPrepend:
        if (!normalized.empty()) normalized.insert(0, step.content);
        break;
      case NormalizerStep::Kind::kPrecompiled:
        normalized = step.map[0].Apply(normalized, MostBytes(text));
        break;
      case NormalizerStep::Kind::kStripRight:
        normalized.resize(WithoutWhiteSpaceBehind(normalized).size());
        break;
      case NormalizerStep::Kind::kReplace:
        MOED_ASSIGN_OR_RETURN(normalized, Replace(step, normalized, MostBytes(text)));
        break;
    }
    if (normalized.size() > MostBytes(text)) return Grown(text);
  }
  return normalized;
}

size_t Normalizer::memory_bytes() const {
  size_t bytes = steps_.capacity() * sizeof(Step);
  for (const Step& step : steps_) {
    bytes += step.content.capacity();
    for (const PrecompiledMap& map : step.map) bytes += sizeof(map) + map.memory_bytes();
    for (const TextPattern& pattern : step.pattern) bytes += sizeof(pattern) + pattern.memory_bytes();
  }
  return bytes;
}

}  // namespace moed
