#include "core/tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "core/base/status.h"
#include "core/tokenizer/added_tokens.h"
#include "core/tokenizer/blob.h"
#include "core/tokenizer/bpe.h"
#include "core/tokenizer/normalizer.h"
#include "core/tokenizer/piece_decoder.h"
#include "core/tokenizer/pre_tokenizer.h"
#include "core/tokenizer/tokenizer_impl.h"
#include "core/tokenizer/unicode.h"

namespace moed {
namespace {

constexpr size_t kLongestText = size_t{1} << 30;  // symbols are counted in int32

void AppendIds(const std::vector<uint32_t>& ids, std::vector<TokenId>& out) {
  for (const uint32_t id : ids) out.push_back(TokenId(static_cast<int32_t>(id)));
}

absl::Status CheckText(std::string_view text) {
  if (text.size() > kLongestText)
    return InvalidArgument("text of ", text.size(), " bytes; at most ", kLongestText, " can be tokenised");
  if (const auto bad = FirstInvalidByte(text)) {
    return InvalidArgument("text is not UTF-8: byte 0x", absl::Hex(static_cast<uint8_t>(text[*bad]), absl::kZeroPad2),
                           " at offset ", *bad);
  }
  return absl::OkStatus();
}

// What of them lies in [begin, end), counted from there.
std::vector<ByteRange> RangesWithin(std::span<const ByteRange> ranges, size_t begin, size_t end) {
  std::vector<ByteRange> within;
  auto range = std::ranges::upper_bound(ranges, begin, {}, &ByteRange::end);
  for (; range != ranges.end() && range->begin < end; ++range) {
    within.push_back({std::max(range->begin, begin) - begin, std::min(range->end, end) - begin});
  }
  return within;
}

// 0 where a token may stand for text of any length: white space around an added token, characters that are dropped, runs of
// unknown ones, text that is replaced. Composition (NFC) makes at most three bytes one.
size_t LongestTokenBytes(const Vocabulary& vocabulary, const TokenizerSpec& spec) {
  constexpr size_t kComposition = 3;
  const bool strips = std::ranges::any_of(spec.added, [](const AddedToken& token) { return token.lstrip || token.rstrip; });
  const bool knows_all =
      (spec.bpe.byte_level || spec.bpe.byte_fallback) && std::ranges::count(spec.bpe.byte_pieces, kNoPiece) == 0;
  const bool removes =
      std::ranges::any_of(spec.pre_tokenizer, [](const auto& step) { return step.behavior == SplitBehavior::kRemoved; });
  if (strips || removes || !knows_all) return 0;
  bool composes = false;
  for (const NormalizerStep& step : spec.normalizer) {
    using Kind = NormalizerStep::Kind;
    const bool shortens = step.kind == Kind::kReplace && (!step.literal || step.content.size() < step.pattern.size());
    if (shortens) return 0;
    composes |= step.kind == Kind::kNfc;
  }
  size_t longest = 1;
  for (uint32_t id = 0; id < vocabulary.size(); ++id) longest = std::max(longest, vocabulary.piece(id).size());
  for (const AddedToken& token : spec.added) longest = std::max(longest, token.content.size());
  return composes ? longest * kComposition : longest;
}

}  // namespace

Tokenizer::Tokenizer() = default;
Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromBlob(std::string blob) {
  auto impl = std::make_unique<Impl>();
  impl->blob = std::move(blob);
  MOED_RETURN_IF_ERROR(impl->Open());
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer);
  tokenizer->impl_ = std::move(impl);
  return tokenizer;
}

absl::Status Tokenizer::Impl::Open() {
  MOED_ASSIGN_OR_RETURN(const auto sections, OpenBlob(blob));
  MOED_ASSIGN_OR_RETURN(vocabulary, Vocabulary::Open(sections));
  const std::string_view word_tokens = sections[static_cast<size_t>(BlobSection::kWordTokens)];
  MOED_ASSIGN_OR_RETURN(tokens, JapaneseWords::CountTokens(vocabulary, word_tokens));
  MOED_ASSIGN_OR_RETURN(TokenizerSpec spec, ParseSpec(sections[static_cast<size_t>(BlobSection::kSpec)], tokens));
  const auto make_steps = [&]() -> absl::Status {
    MOED_ASSIGN_OR_RETURN(raw_added, AddedTokenMatcher::Make(spec.added, false));
    MOED_ASSIGN_OR_RETURN(normalized_added, AddedTokenMatcher::Make(spec.added, true));
    MOED_ASSIGN_OR_RETURN(normalizer, Normalizer::Make(spec.normalizer));
    MOED_ASSIGN_OR_RETURN(pre_tokenizer, PreTokenizer::Make(spec.pre_tokenizer));
    return spec.bpe.byte_level ? absl::OkStatus() : CheckDecodedPieces(spec.decoder, vocabulary);
  };
  if (const absl::Status made = make_steps(); !made.ok()) return DataLoss("compiled tokenizer: ", made.message());
  byte_level = spec.bpe.byte_level;
  if (!byte_level) {
    for (uint32_t id = 0; id < vocabulary.size(); ++id) {
      if (FirstInvalidByte(vocabulary.piece(id))) return DataLoss("compiled tokenizer: piece ", id, " is not UTF-8");
    }
  }
  for (const AddedToken& token : spec.added) {
    if (token.special) special_ids.push_back(token.id);
  }
  std::ranges::sort(special_ids);
  longest_token_bytes = LongestTokenBytes(vocabulary, spec);
  if (!word_tokens.empty()) {
    MOED_ASSIGN_OR_RETURN(japanese, JapaneseWords::Make(vocabulary, word_tokens,
                                                        sections[static_cast<size_t>(BlobSection::kReplacements)], spec.bpe));
    longest_token_bytes = japanese->longest_token_bytes();
    for (const AddedToken& token : spec.added) longest_token_bytes = std::max(longest_token_bytes, token.content.size());
  } else if (const std::string_view scores = sections[static_cast<size_t>(BlobSection::kScores)]; !scores.empty()) {
    MOED_ASSIGN_OR_RETURN(unigram, Unigram::Make(vocabulary, scores, spec.bpe));
  } else {
    bpe.emplace(vocabulary, std::move(spec.bpe));
  }
  prefix_ids = std::move(spec.prefix_ids);
  suffix_ids = std::move(spec.suffix_ids);
  decoder = std::move(spec.decoder);
  return absl::OkStatus();
}

// Normalised piece by piece, cut where foreign bytes begin and end.
absl::StatusOr<std::vector<ByteRange>> Tokenizer::Impl::ForeignOfNormalized(std::string_view text,
                                                                            std::span<const ByteRange> foreign,
                                                                            std::string_view normalized) const {
  std::vector<ByteRange> mapped;
  std::string joined;
  size_t done = 0;
  const auto append = [&](size_t end) -> absl::Status {
    MOED_ASSIGN_OR_RETURN(const std::string piece, normalizer.Apply(text.substr(done, end - done)));
    joined += piece;
    done = end;
    return absl::OkStatus();
  };
  for (const ByteRange& range : foreign) {
    MOED_RETURN_IF_ERROR(append(range.begin));
    const size_t begin = joined.size();
    MOED_RETURN_IF_ERROR(append(range.end));
    mapped.push_back({begin, joined.size()});
    if (joined.size() > normalized.size()) break;  // normalised otherwise than the whole
  }
  MOED_RETURN_IF_ERROR(append(text.size()));
  if (!foreign.empty() && joined != normalized) return std::vector<ByteRange>{{0, normalized.size()}};
  return mapped;
}

// Added tokens of the raw text, then normalisation of what lies between them, then added tokens of the normalised text, then
// words: each section goes all the way before the next begins.
absl::Status Tokenizer::Impl::AppendText(std::string_view text, const EncodeOptions& options, std::vector<TokenId>& out) const {
  BpeScratch scratch(options.max_word_bytes);
  Unigram::Scratch unigram_scratch(options.max_word_bytes);
  const bool nowhere = !options.parse_special_tokens;
  const bool maps_foreign = !options.foreign.empty() && normalized_added.has_special();
  const auto check_tokens = [&] {
    return out.size() <= options.max_tokens ? absl::OkStatus()
                                            : absl::OutOfRangeError(StrCat("gives more than ", options.max_tokens, " tokens"));
  };
  const auto append_words = [&](std::string_view words, bool text_begins) {
    return pre_tokenizer.Split(words, text_begins, [&](std::string_view word) -> absl::Status {
      MOED_RETURN_IF_ERROR(japanese  ? japanese->Append(word, options.max_word_bytes, out)
                           : unigram ? unigram->Append(word, unigram_scratch, out)
                                     : bpe->Append(word, scratch, out));
      return check_tokens();
    });
  };
  const auto append_normalized = [&](std::string_view normalized, std::span<const ByteRange> foreign, bool text_begins) {
    return normalized_added.Split(normalized, {nowhere, foreign}, [&](const AddedTokenMatcher::Section& section) {
      if (!section.token) return append_words(section.text, text_begins && section.text.data() == normalized.data());
      out.push_back(TokenId(static_cast<int32_t>(*section.token)));
      return check_tokens();
    });
  };
  return raw_added.Split(text, {nowhere, options.foreign}, [&](const AddedTokenMatcher::Section& section) -> absl::Status {
    if (section.token) {
      out.push_back(TokenId(static_cast<int32_t>(*section.token)));
      return check_tokens();
    }
    const bool text_begins = section.text.data() == text.data();
    const auto begin = static_cast<size_t>(section.text.data() - text.data());
    std::vector<ByteRange> foreign;
    if (maps_foreign) foreign = RangesWithin(options.foreign, begin, begin + section.text.size());
    if (normalizer.empty()) return append_normalized(section.text, foreign, text_begins);
    MOED_ASSIGN_OR_RETURN(const std::string normalized, normalizer.Apply(section.text));
    MOED_ASSIGN_OR_RETURN(foreign, ForeignOfNormalized(section.text, foreign, normalized));
    return append_normalized(normalized, foreign, text_begins);
  });
}

absl::StatusOr<std::vector<TokenId>> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  MOED_RETURN_IF_ERROR(CheckText(text));
  std::vector<TokenId> ids;
  if (options.add_special_tokens) AppendIds(impl_->prefix_ids, ids);
  MOED_RETURN_IF_ERROR(impl_->AppendText(text, options, ids));
  if (options.add_special_tokens) AppendIds(impl_->suffix_ids, ids);
  return ids;
}

absl::StatusOr<std::string> Tokenizer::Decode(std::span<const TokenId> tokens, bool skip_special_tokens, size_t max_bytes) const {
  StreamDecoder stream(*this, skip_special_tokens, /*continues=*/false);
  std::string text;
  for (const TokenId token : tokens) {
    if (token.value() < 0 || token.value() >= vocabulary_size()) {
      return InvalidArgument("token id ", token.value(), " is outside the vocabulary: 0 to ", vocabulary_size() - 1);
    }
    text += stream.Push(token);
    if (text.size() > max_bytes) return InvalidArgument("give a text of more than ", max_bytes, " bytes");
  }
  return text += stream.Flush();
}

size_t Tokenizer::MostTextBytes(size_t tokens) const {
  const size_t longest = impl_->longest_token_bytes;
  return longest == 0 || tokens > SIZE_MAX / longest ? SIZE_MAX : tokens * longest;
}

size_t Tokenizer::EncodeScratchBytes(size_t word_bytes) {
  return word_bytes * std::max(BpeScratch::kBytesForByte, Unigram::Scratch::kBytesForByte);
}

int Tokenizer::vocabulary_size() const { return static_cast<int>(impl_->tokens); }

bool Tokenizer::IsSpecial(TokenId token) const {
  return token.value() >= 0 && std::ranges::binary_search(impl_->special_ids, static_cast<uint32_t>(token.value()));
}

std::string Tokenizer::TokenBytes(TokenId token) const {
  const std::string_view piece = impl_->Piece(token);
  if (impl_->byte_level) return std::string(piece);
  const std::string text = DecodedPiece(impl_->decoder, piece, /*first=*/false);
  const auto byte = impl_->decoder.byte_fallback ? SpelledByte(text) : std::nullopt;
  return byte ? std::string(1, static_cast<char>(*byte)) : text;
}

size_t Tokenizer::memory_bytes() const {
  const auto of_ids = [](const std::vector<uint32_t>& ids) { return ids.capacity() * sizeof(uint32_t); };
  return sizeof(Tokenizer) + sizeof(Impl) + impl_->blob.capacity() + impl_->raw_added.memory_bytes() +
         impl_->normalized_added.memory_bytes() + impl_->normalizer.memory_bytes() + impl_->pre_tokenizer.memory_bytes() +
         (impl_->japanese ? impl_->japanese->memory_bytes() : 0) + of_ids(impl_->special_ids) + of_ids(impl_->prefix_ids) +
         of_ids(impl_->suffix_ids);
}

}  // namespace moed
