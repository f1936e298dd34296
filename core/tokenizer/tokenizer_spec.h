// What a tokenizer does, as plain data: the steps of tokenizer.json reduced to a few kinds. The vocabulary stands beside it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace moed {

inline constexpr uint32_t kNoPiece = 0xFFFFFFFF;
inline constexpr size_t kLongestAddedToken = 1024;  // bytes: each place of a text may be compared with as many
inline constexpr size_t kMostTokenizerSteps = 64;   // of a kind

struct NormalizerStep {
  enum class Kind : uint8_t { kNfc, kPrepend, kReplace, kPrecompiled, kStripRight };
  static constexpr uint8_t kKinds = 5;
  Kind kind = Kind::kNfc;
  bool literal = true;  // kReplace: `pattern` is text, not a regular expression
  std::string pattern;
  std::string content;  // what is prepended or put in; kPrecompiled: a PrecompiledMap
};

enum class SplitBehavior : uint8_t { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };
inline constexpr uint8_t kSplitBehaviors = 5;

enum class PrefixRule : uint8_t { kNever, kFirstPiece, kEveryPiece };  // kFirstPiece: where the whole text begins
inline constexpr uint8_t kPrefixRules = 3;

// In this order, each part optional: spaces become `space`, `prefix` is put before a piece that lacks it, the piece is split.
struct PreTokenizerStep {
  std::string space;
  PrefixRule prefix_rule = PrefixRule::kNever;
  std::string prefix;
  std::string pattern;  // empty: no split
  bool literal = false;
  bool invert = false;
  SplitBehavior behavior = SplitBehavior::kIsolated;
};

struct AddedToken {
  uint32_t id = 0;
  std::string content;  // as it is matched: normalised where `normalized`
  bool special = false;
  bool lstrip = false;  // takes the white space before it
  bool rstrip = false;
  bool single_word = false;
  bool normalized = false;  // matched in the normalised text, else in the raw one
};

// Of a unigram model too: byte_fallback, unk and byte_pieces.
struct BpeOptions {
  bool byte_level = false;     // symbols are bytes, else characters
  bool ignore_merges = false;  // a word that is a piece is that piece
  bool byte_fallback = false;  // an unknown character becomes its bytes' pieces
  bool fuse_unk = false;
  uint32_t unk = kNoPiece;
  // No merge puts anything else than this before it, so that words may be cut there without changing the result. Empty: none.
  std::string boundary;
  // byte_level: the piece of a byte. byte_fallback: the piece "<0xXX>".
  std::array<uint32_t, 256> byte_pieces{};
};

struct DecoderSpec {
  struct Replacement {
    std::string from, to;
  };
  std::vector<Replacement> replacements;  // in each piece, in order
  bool byte_fallback = false;             // runs of "<0xXX>" become text
  std::string first_piece_drops;          // taken out of the first piece, before the replacements
  std::string strip;                      // one character, taken off the front of the whole text
  uint32_t strip_count = 0;
};

struct TokenizerSpec {
  BpeOptions bpe;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<AddedToken> added;  // the first of two with the same content counts
  std::vector<uint32_t> prefix_ids, suffix_ids;
  DecoderSpec decoder;
};

std::string SerializeSpec(const TokenizerSpec& spec);
// DATA_LOSS for bytes that are none; ids must lie below `pieces`.
absl::StatusOr<TokenizerSpec> ParseSpec(std::string_view bytes, size_t pieces);

}  // namespace moed
