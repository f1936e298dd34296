// vocab.txt and emoji.json of GPTSAN-japanese to the parts of a compiled tokenizer; pack time only.
#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/status.h"
#include "core/tokenizer/blob.h"
#include "core/tokenizer/japanese_words.h"
#include "core/tokenizer/tokenizer.h"
#include "core/tokenizer/tokenizer_spec.h"
#include "core/tokenizer/unicode.h"
#include "core/tokenizer/vocabulary.h"

namespace moed {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Replacements = std::vector<JapaneseWords::Replacement>;

constexpr std::string_view kBegin = "<|startoftext|>", kSegment = "<|segmenter|>", kUnknown = "<|nottoken|>",
                           kRepeat = "<|bagoftoken|>";
// Before those of emoji.json, in this order.
constexpr std::pair<std::string_view, std::string_view> kReplaced[] = {
    {" ", "<SP>"},  {"\u3000", "<SP>"}, {"\r\n", "<BR>"},     {"\n", "<BR>"},
    {"\r", "<BR>"}, {"\t", "<TAB>"},    {"\u2014", "\u30FC"}, {"\u2212", "\u30FC"}};
// What words say that do not say themselves.
constexpr std::pair<std::string_view, std::string_view> kSaid[] = {
    {"<SP>", " "}, {"<BR>", "\n"}, {"<TAB>", "\t"}, {"<BLOCK>", "\u2580"}, {"<KIGOU>", "\u01C0"}, {"<U2000U2BFF>", "\u2016"},
    {kRepeat, ""}};

bool IsControl(std::string_view word) { return word.size() >= 4 && word.starts_with("<|") && word.ends_with("|>"); }

// The byte of "<|byte65|>".
std::optional<uint8_t> ByteOf(std::string_view word) {
  constexpr std::string_view kName = "<|byte";
  if (!IsControl(word) || !word.starts_with(kName)) return std::nullopt;
  const std::string_view digits = word.substr(kName.size(), word.size() - kName.size() - 2);
  uint8_t byte = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte);
  return error == std::errc() && end == digits.data() + digits.size() ? std::optional(byte) : std::nullopt;
}

// What emoji.json says: what is replaced, and what the words in its place say.
struct Emoji {
  Replacements replacements;
  std::map<std::string, std::string, std::less<>> said;
};

absl::StatusOr<Emoji> ReadEmoji(std::string_view text) {
  const auto wrong = [] {
    return InvalidArgument("emoji.json: expected {\"emoji\": {text: word, ...}, \"emoji_inv\": {word: text, ...}}");
  };
  const OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.size() != 2) return wrong();
  Emoji emoji;
  for (const char* part : {"emoji", "emoji_inv"}) {
    if (!json.contains(part) || !json[part].is_object()) return wrong();
    for (const auto& [key, value] : json[part].items()) {
      if (key.empty() || !value.is_string()) return wrong();
      if (part == std::string_view("emoji")) {
        emoji.replacements.push_back({key, value.get<std::string>()});
      } else {
        emoji.said[key] = value.get<std::string>();
      }
    }
  }
  return emoji;
}

std::vector<std::string> Split(std::string_view text, char at) {
  std::vector<std::string> parts;
  for (size_t end; (end = text.find(at)) != std::string_view::npos; text.remove_prefix(end + 1)) {
    parts.emplace_back(text.substr(0, end));
  }
  parts.emplace_back(text);
  return parts;
}

// The words of each token. A line with commas has several, of one token; a comma alone is one.
absl::StatusOr<std::vector<std::vector<std::string>>> ReadWords(std::string_view text) {
  if (FirstInvalidByte(text)) return InvalidArgument("vocab.txt is not UTF-8");
  if (text.find('\r') != std::string_view::npos) return InvalidArgument("vocab.txt: a carriage return; lines end with \\n alone");
  if (text.ends_with('\n')) text.remove_suffix(1);
  std::vector<std::vector<std::string>> words;
  for (const std::string& line : Split(text, '\n')) {
    if (line.empty()) return InvalidArgument("vocab.txt: line ", words.size() + 1, " is empty, expected a word");
    words.push_back(line == "," ? std::vector<std::string>{","} : Split(line, ','));
  }
  return words;
}

class JapaneseCompiler {
 public:
  JapaneseCompiler(std::vector<std::vector<std::string>> words, Emoji emoji)
      : words_(std::move(words)), emoji_(std::move(emoji)) {}

  absl::StatusOr<std::string> Compile() {
    for (uint32_t token = 0; token < words_.size(); ++token) MOED_RETURN_IF_ERROR(AddToken(token));
    MOED_RETURN_IF_ERROR(ReadSpec());
    std::vector<uint32_t> found, tokens;
    for (const auto& [word, token] : tokens_) {
      if (IsSpecial(word)) continue;
      found.push_back(static_cast<uint32_t>(pieces_.size()));
      pieces_.push_back(word);
      tokens.push_back(token);
    }
    PerBlobSection<std::string> sections;
    const auto section = [&](BlobSection which) -> std::string& { return sections[static_cast<size_t>(which)]; };
    BuildVocabulary(pieces_, found, {}, sections);
    section(BlobSection::kSpec) = SerializeSpec(spec_);
    section(BlobSection::kWordTokens).assign(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(uint32_t));
    Replacements replacements;
    for (const auto& [from, to] : kReplaced) replacements.push_back({std::string(from), std::string(to)});
    std::ranges::move(emoji_.replacements, std::back_inserter(replacements));
    section(BlobSection::kReplacements) = JapaneseWords::SerializeReplacements(replacements);
    return SealBlob(sections);
  }

 private:
  // Controls that say nothing of a text, and are no text: they are cut out of trusted texts alone.
  bool IsSpecial(std::string_view word) const {
    return IsControl(word) && word != kRepeat && !ByteOf(word) && !emoji_.said.contains(word);
  }

  // Of words that stand in several lines the last counts.
  absl::Status AddToken(uint32_t token) {
    const std::string& first = words_[token].front();
    const auto said = std::ranges::find(kSaid, first, [](const auto& pair) { return pair.first; });
    if (const auto byte = ByteOf(first)) {
      pieces_.emplace_back(1, static_cast<char>(*byte));
    } else if (const auto emoji = emoji_.said.find(first); emoji != emoji_.said.end()) {
      pieces_.push_back(emoji->second);
    } else if (first.starts_with("<|emoji") && IsControl(first)) {
      return InvalidArgument("emoji.json: emoji_inv does not say what ", first, " is");
    } else {
      pieces_.push_back(said != std::end(kSaid) ? std::string(said->second) : first);
    }
    for (const std::string& word : words_[token]) {
      if (!word.empty()) tokens_[word] = token;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<uint32_t> TokenOf(std::string_view word) const {
    const auto found = tokens_.find(word);
    if (found == tokens_.end()) return InvalidArgument("vocab.txt has no ", word);
    return found->second;
  }

  absl::Status ReadSpec() {
    spec_.bpe.byte_level = true;
    MOED_ASSIGN_OR_RETURN(spec_.bpe.unk, TokenOf(kUnknown));
    for (uint32_t byte = 0; byte < spec_.bpe.byte_pieces.size(); ++byte) {
      const auto found = tokens_.find(StrCat("<|byte", byte, "|>"));
      spec_.bpe.byte_pieces[byte] = found == tokens_.end() ? spec_.bpe.unk : found->second;
    }
    MOED_ASSIGN_OR_RETURN(const uint32_t begin, TokenOf(kBegin));
    MOED_ASSIGN_OR_RETURN(const uint32_t segment, TokenOf(kSegment));
    spec_.prefix_ids = {begin};
    spec_.suffix_ids = {segment};
    for (const auto& [word, token] : tokens_) {
      if (IsSpecial(word)) spec_.added.push_back({.id = token, .content = word, .special = true});
    }
    return absl::OkStatus();
  }

  std::vector<std::vector<std::string>> words_;  // [token]
  Emoji emoji_;
  std::map<std::string, uint32_t, std::less<>> tokens_;  // of words
  std::vector<std::string> pieces_;                      // what tokens say, then words
  TokenizerSpec spec_;
};

}  // namespace

absl::StatusOr<std::string> CompileJapaneseTokenizer(std::string_view vocab_txt, std::string_view emoji_json) {
  MOED_ASSIGN_OR_RETURN(auto words, ReadWords(vocab_txt));
  MOED_ASSIGN_OR_RETURN(Emoji emoji, ReadEmoji(emoji_json));
  return JapaneseCompiler(std::move(words), std::move(emoji)).Compile();
}

}  // namespace moed
