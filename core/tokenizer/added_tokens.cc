#include "core/tokenizer/added_tokens.h"

#include <algorithm>

#include "core/base/status.h"
#include "core/tokenizer/unicode.h"

namespace moed {
namespace {

// Letters (and what counts as alphabetic beside them), marks, decimal digits, connectors, joiners.
constexpr std::string_view kWordCharacter =
    "[\\p{L}\\p{Nl}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-"
    "\\x{1f189}]";

size_t WhiteSpaceBefore(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0) {
    const size_t bytes = LastCharacterBytes(text.substr(0, begin));
    if (!IsWhiteSpace(FirstCharacter(text.substr(begin - bytes)))) break;
    begin -= bytes;
  }
  return begin;
}

size_t WhiteSpaceAfter(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && IsWhiteSpace(FirstCharacter(text.substr(end)))) end += FirstCharacterBytes(text.substr(end));
  return end;
}

}  // namespace

absl::StatusOr<AddedTokenMatcher> AddedTokenMatcher::Make(const std::vector<AddedToken>& tokens, bool normalized) {
  AddedTokenMatcher matcher;
  for (const AddedToken& token : tokens) {
    if (token.normalized == normalized) matcher.tokens_.push_back(token);
  }
  auto& sorted = matcher.tokens_;
  const auto content = [](const AddedToken& token) -> const std::string& { return token.content; };
  std::ranges::stable_sort(sorted, {}, content);
  const auto same = [](const AddedToken& a, const AddedToken& b) { return a.content == b.content; };
  sorted.erase(std::unique(sorted.begin(), sorted.end(), same), sorted.end());
  for (const AddedToken& token : sorted) ++matcher.first_byte_[static_cast<uint8_t>(token.content[0]) + 1];
  for (size_t byte = 1; byte < matcher.first_byte_.size(); ++byte) matcher.first_byte_[byte] += matcher.first_byte_[byte - 1];
  if (std::ranges::any_of(sorted, &AddedToken::single_word)) {
    MOED_ASSIGN_OR_RETURN(matcher.word_character_, TextPattern::Compile(kWordCharacter, false));
  }
  return matcher;
}

// Narrows the sorted tokens byte by byte to those that the text still spells.
const AddedToken* AddedTokenMatcher::LongestAt(std::string_view text) const {
  const auto lead = static_cast<uint8_t>(text[0]);
  auto begin = tokens_.begin() + first_byte_[lead], end = tokens_.begin() + first_byte_[lead + 1];
  const AddedToken* longest = nullptr;
  for (size_t depth = 1; begin != end; ++depth) {
    if (begin->content.size() == depth) longest = &*begin++;
    if (depth == text.size()) break;
    const auto byte_at_depth = [depth](const AddedToken& token) { return static_cast<uint8_t>(token.content[depth]); };
    const auto byte = static_cast<uint8_t>(text[depth]);
    begin = std::ranges::lower_bound(begin, end, byte, {}, byte_at_depth);
    end = std::ranges::upper_bound(begin, end, byte, {}, byte_at_depth);
  }
  return longest;
}

bool AddedTokenMatcher::has_special() const { return std::ranges::any_of(tokens_, &AddedToken::special); }

// What is foreign in part hides no token that is the text's own: neither a shorter one that begins with it, nor the next.
const AddedToken* AddedTokenMatcher::AllowedAt(std::string_view text, const SpecialScope& special, size_t& at) const {
  const size_t begin = at;
  const AddedToken* token = LongestAt(text.substr(begin));
  if (token != nullptr && token->special && !special.nowhere) {
    const auto foreign = std::ranges::upper_bound(special.foreign, begin, {}, &ByteRange::end);
    const size_t end = begin + token->content.size();
    if (foreign != special.foreign.end() && foreign->begin < end) {
      at = end;
      if (foreign->begin <= begin && foreign->end >= end) return nullptr;
      token = foreign->begin > begin ? LongestAt(text.substr(begin, foreign->begin - begin)) : nullptr;
    }
  }
  at = begin + (token == nullptr ? 1 : token->content.size());
  return token != nullptr && token->special && special.nowhere ? nullptr : token;
}

absl::StatusOr<bool> AddedTokenMatcher::IsSingleWord(std::string_view text, size_t begin, size_t end) const {
  const TextPattern::Searcher searcher(*word_character_);
  for (const std::string_view neighbour :
       {begin > 0 ? text.substr(begin - LastCharacterBytes(text.substr(0, begin)), LastCharacterBytes(text.substr(0, begin)))
                  : std::string_view(),
        end < text.size() ? text.substr(end, FirstCharacterBytes(text.substr(end))) : std::string_view()}) {
    if (neighbour.empty()) continue;
    MOED_ASSIGN_OR_RETURN(const auto word, searcher.Find(neighbour, 0));
    if (word) return false;
  }
  return true;
}

absl::Status AddedTokenMatcher::Split(std::string_view text, const SpecialScope& special,
                                      absl::FunctionRef<absl::Status(const Section&)> section) const {
  size_t done = 0;         // may lie beyond the next match: stripped white space can itself be a token
  size_t stripped_to = 0;  // where the last white space that was taken on the right ends
  for (size_t at = 0; at < text.size() && !empty();) {
    size_t begin = at;
    const AddedToken* token = AllowedAt(text, special, at);
    if (token == nullptr) continue;
    size_t end = at;
    if (token->single_word) {
      MOED_ASSIGN_OR_RETURN(const bool alone, IsSingleWord(text, begin, end));
      if (!alone) continue;
    }
    if (token->lstrip) begin = done < begin ? done + WhiteSpaceBefore(text.substr(done, begin - done)) : done;
    if (token->rstrip) {
      if (end >= stripped_to) stripped_to = end + WhiteSpaceAfter(text.substr(end));
      end = stripped_to;
    }
    if (begin >= end) continue;  // all of it was taken by the token before it
    if (done < begin) MOED_RETURN_IF_ERROR(section({text.substr(done, begin - done), std::nullopt}));
    MOED_RETURN_IF_ERROR(section({text.substr(begin, end - begin), token->id}));
    done = end;
  }
  if (done < text.size()) MOED_RETURN_IF_ERROR(section({text.substr(done), std::nullopt}));
  return absl::OkStatus();
}

size_t AddedTokenMatcher::memory_bytes() const {
  size_t bytes = tokens_.capacity() * sizeof(AddedToken) + (word_character_ ? word_character_->memory_bytes() : 0);
  for (const AddedToken& token : tokens_) bytes += token.content.capacity();
  return bytes;
}

}  // namespace moed
