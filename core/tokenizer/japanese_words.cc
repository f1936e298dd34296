#include "core/tokenizer/japanese_words.h"

#include <algorithm>
#include <bitset>

#include "core/base/status.h"
#include "core/base/utf8.h"
#include "core/tokenizer/unicode.h"

namespace moed {
namespace {

constexpr size_t kWordCharacters = 3;  // of a word that does not begin with "<", at most
constexpr size_t kMarkup = 2;          // characters: what begins with "<" and has more is taken before anything else
constexpr size_t kGrowth = 12;         // bytes of what a byte is replaced by, at most

absl::Status Damaged(std::string_view what) { return DataLoss("compiled tokenizer: ", what); }

// Which characters a text may have: whether a replacement can be found in it is known without a search most times.
class CharacterSet {
 public:
  void Add(std::string_view text) {
    for (size_t bytes; !text.empty(); text.remove_prefix(bytes)) {
      bytes = FirstCharacterBytes(text);
      seen_.set(FirstCharacter(text) % kBits);
    }
  }
  bool MayHold(std::string_view text) const {
    for (size_t bytes; !text.empty(); text.remove_prefix(bytes)) {
      bytes = FirstCharacterBytes(text);
      if (!seen_.test(FirstCharacter(text) % kBits)) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kBits = 1 << 13;
  std::bitset<kBits> seen_;
};

void ReplaceAll(std::string_view from, std::string_view to, std::string& text) {
  size_t at = text.find(from);
  if (at == std::string::npos) return;
  std::string replaced;
  size_t done = 0;
  for (; at != std::string::npos; at = text.find(from, done)) {
    replaced.append(text, done, at - done);
    replaced += to;
    done = at + from.size();
  }
  replaced.append(text, done, std::string::npos);
  text = std::move(replaced);
}

bool Within(uint32_t value, uint32_t low, uint32_t high) { return low <= value && value <= high; }

// The bytes of a character as one number.
uint32_t Packed(std::string_view character) {
  uint32_t packed = 0;
  for (const char byte : character) packed = packed << 8 | static_cast<uint8_t>(byte);
  return packed;
}

bool IsSymbol(std::string_view character) {
  const uint32_t bytes = Packed(character);
  return character.size() == 2 && (Within(bytes, 0xC2A1, 0xC2BF) || Within(bytes, 0xC780, 0xC783) ||
                                   Within(bytes, 0xCAB9, 0xCBBF) || Within(bytes, 0xCC80, 0xCDA2));
}

bool IsGeneralSymbol(std::string_view character) {
  return character.size() == 3 && Within(Packed(character), 0xE28080, 0xE2B07F);
}

}  // namespace

std::string JapaneseWords::SerializeReplacements(const std::vector<Replacement>& replacements) {
  FieldWriter writer;
  writer.U32(static_cast<uint32_t>(replacements.size()));
  for (const auto& [from, to] : replacements) {
    writer.String(from);
    writer.String(to);
  }
  return writer.Take();
}

absl::StatusOr<size_t> JapaneseWords::CountTokens(const Vocabulary& vocabulary, std::string_view word_tokens) {
  const U32Array tokens(word_tokens);
  if (word_tokens.size() % sizeof(uint32_t) != 0 || tokens.size() >= vocabulary.size()) return Damaged("its words are cut off");
  const size_t count = vocabulary.size() - tokens.size();
  for (size_t word = 0; word < tokens.size(); ++word) {
    if (tokens[word] >= count) return Damaged(StrCat("word ", word, " has no token"));
    if (FirstInvalidByte(vocabulary.piece(static_cast<uint32_t>(count + word)))) {
      return Damaged(StrCat("word ", word, " is not UTF-8"));
    }
  }
  return count;
}

absl::StatusOr<JapaneseWords> JapaneseWords::Make(const Vocabulary& vocabulary, std::string_view word_tokens,
                                                  std::string_view replacements, const BpeOptions& options) {
  JapaneseWords made(vocabulary, word_tokens, options);
  if (options.unk == kNoPiece) return Damaged("there is no token of what is unknown");
  for (const uint32_t token : options.byte_pieces) {
    if (token == kNoPiece) return Damaged("not every byte has a token");
  }
  FieldReader reader(replacements);
  for (uint32_t i = reader.Count(2 * sizeof(uint32_t)); i > 0; --i) {
    Replacement& replacement = made.replacements_.emplace_back(Replacement{reader.String(), reader.String()});
    if (replacement.from.empty() || FirstInvalidByte(replacement.from) || FirstInvalidByte(replacement.to)) {
      return Damaged("a replacement is damaged");
    }
    made.longest_token_bytes_ = std::max(made.longest_token_bytes_, replacement.from.size());
  }
  if (!reader.ok() || !reader.at_end()) return Damaged("its replacements are damaged");
  for (size_t word = vocabulary.size() - made.word_tokens_.size(); word < vocabulary.size(); ++word) {
    const std::string_view text = vocabulary.piece(static_cast<uint32_t>(word));
    made.longest_word_ = std::max(made.longest_word_, CountCharacters(text));
    made.longest_token_bytes_ = std::max(made.longest_token_bytes_, text.size());
  }
  made.symbol_ = made.Find("<KIGOU>");
  made.general_symbol_ = made.Find("<U2000U2BFF>");
  made.repeat_ = made.Find("<|bagoftoken|>");
  return made;
}

std::optional<uint32_t> JapaneseWords::Find(std::string_view word) const {
  const size_t tokens = vocabulary_.size() - word_tokens_.size();
  const auto found = vocabulary_.Find(word);
  return found && *found >= tokens ? std::optional(word_tokens_[*found - tokens]) : std::nullopt;
}

absl::StatusOr<std::string> JapaneseWords::Replaced(std::string_view text) const {
  std::string replaced(text);
  CharacterSet characters;
  characters.Add(text);
  for (const auto& [from, to] : replacements_) {
    if (!characters.MayHold(from)) continue;
    ReplaceAll(from, to, replaced);
    if (replaced.size() > kGrowth * text.size()) return Damaged("its replacements make a text too long");
    characters.Add(to);
  }
  return replaced;
}

std::optional<JapaneseWords::Word> JapaneseWords::FirstWord(std::string_view text) const {
  const bool markup = text.starts_with('<');
  std::optional<Word> best, longest_markup;
  size_t end = 0;
  for (size_t characters = 1; characters <= (markup ? longest_word_ : kWordCharacters) && end < text.size(); ++characters) {
    end += FirstCharacterBytes(text.substr(end));
    const auto token = Find(text.substr(0, end));
    if (!token) continue;
    if (markup && characters > kMarkup) {
      longest_markup = {*token, end};
    } else if (!best || *token <= best->token) {  // of two spellings of one token the longer
      best = {*token, end};
    }
  }
  return longest_markup ? longest_markup : best;
}

void JapaneseWords::AppendSpelled(std::string_view character, std::vector<TokenId>& out) const {
  const auto add = [&](uint32_t token) { out.push_back(TokenId(static_cast<int32_t>(token))); };
  if (IsSymbol(character)) return add(symbol_.value_or(options_.unk));
  if (IsGeneralSymbol(character)) return add(general_symbol_.value_or(options_.unk));
  for (const char byte : character) add(options_.byte_pieces[static_cast<uint8_t>(byte)]);
}

absl::Status JapaneseWords::Append(std::string_view text, size_t max_bytes, std::vector<TokenId>& out) const {
  if (text.size() > max_bytes) {
    return InvalidArgument("a stretch of ", text.size(), " bytes without a place to cut; at most ", max_bytes,
                           " can be tokenised");
  }
  MOED_ASSIGN_OR_RETURN(const std::string replaced, Replaced(text));
  for (std::string_view rest = replaced; !rest.empty();) {
    if (const auto word = FirstWord(rest)) {
      out.push_back(TokenId(static_cast<int32_t>(word->token)));
      rest.remove_prefix(word->bytes);
    } else {
      const size_t bytes = FirstCharacterBytes(rest);
      AppendSpelled(rest.substr(0, bytes), out);
      rest.remove_prefix(bytes);
    }
  }
  return absl::OkStatus();
}

bool JapaneseWords::IsByte(TokenId token, std::string_view said) const {
  return said.size() == 1 && options_.byte_pieces[static_cast<uint8_t>(said[0])] == static_cast<uint32_t>(token.value());
}

size_t JapaneseWords::memory_bytes() const {
  size_t bytes = replacements_.capacity() * sizeof(Replacement);
  for (const auto& [from, to] : replacements_) bytes += from.capacity() + to.capacity();
  return bytes;
}

}  // namespace moed
