#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "core/base/status.h"
#include "core/tokenizer/compile.h"
#include "core/tokenizer/normalizer.h"
#include "core/tokenizer/unicode.h"
#include "core/tokenizer/unigram.h"
#include "core/tokenizer/vocabulary.h"

namespace moed {
namespace {

constexpr std::string_view kBoundary = "\xE2\x96\x81";  // U+2581, SentencePiece's space

using Ids = std::unordered_map<std::string, uint32_t>;

class Compiler {
 public:
  Compiler(const JsonPart& model, TokenizerSpec& spec) : model_(model), spec_(spec) {}

  absl::Status ReadPieces();
  // Of a unigram model: a list of pieces with their scores.
  absl::Status ReadScoredPieces();
  absl::Status ReadOptions();
  absl::Status ReadUnigramOptions();
  absl::Status ReadMerges();
  absl::Status ReadAdded(const Json& list);
  size_t Build(PerBlobSection<std::string>& sections);

 private:
  absl::Status ReadAddedToken(const Json& json, size_t index, uint32_t& highest_added, Ids& seen);
  absl::Status ReadMerge(const Json& json, size_t rank);
  absl::Status NormalizeAdded();
  void FindBytePieces();
  std::optional<uint32_t> Id(const std::string& spelled) const;
  void SetPiece(uint32_t id, const std::string& spelled);
  bool IsFound(const std::string& spelled) const;
  bool CutsAtBoundary() const;

  const JsonPart& model_;
  TokenizerSpec& spec_;
  Ids ids_;  // the model's vocabulary as spelled in the file
  std::vector<std::string> pieces_;
  std::vector<MergeRule> merges_;
  std::vector<double> scores_;  // by piece; empty: the model is BPE
  bool merges_cross_boundary_ = false;
};

std::optional<uint32_t> Compiler::Id(const std::string& spelled) const {
  const auto found = ids_.find(spelled);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

void Compiler::SetPiece(uint32_t id, const std::string& spelled) {
  if (pieces_.size() <= id) pieces_.resize(id + 1);
  pieces_[id] = spec_.bpe.byte_level ? FromByteLevel(spelled).value_or(spelled) : spelled;
}

absl::Status Compiler::ReadPieces() {
  constexpr uint64_t kMostPieces = 1u << 24;
  const Json& vocab = model_.json("vocab");
  if (!vocab.is_object() || vocab.empty()) return model_.Wrong("vocab", "an object of pieces and ids");
  std::unordered_map<uint32_t, const std::string*> piece_of;
  for (const auto& [piece, id] : vocab.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMostPieces) {
      return InvalidArgument("model.vocab: the id of '", piece, "' is not a number from 0 to ", kMostPieces - 1);
    }
    const auto [entry, inserted] = ids_.emplace(piece, id.get<uint32_t>());
    if (const auto [other, is_new] = piece_of.emplace(entry->second, &entry->first); !is_new) {
      return InvalidArgument("model.vocab: '", *other->second, "' and '", piece, "' have the same id ", entry->second);
    }
    SetPiece(entry->second, piece);
  }
  return absl::OkStatus();
}

absl::Status Compiler::ReadOptions() {
  BpeOptions& bpe = spec_.bpe;
  if (model_.HasValue("dropout") && model_.json("dropout") != 0.0) return model_.Wrong("dropout", "null");
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (model_.HasValue(key) && model_.json(key) != "") return model_.Wrong(key, "null");
  }
  MOED_ASSIGN_OR_RETURN(bpe.ignore_merges, model_.BoolOr("ignore_merges", false));
  MOED_ASSIGN_OR_RETURN(bpe.byte_fallback, model_.BoolOr("byte_fallback", false));
  MOED_ASSIGN_OR_RETURN(bpe.fuse_unk, model_.BoolOr("fuse_unk", false));
  if (bpe.byte_fallback && bpe.byte_level) return model_.Wrong("byte_fallback", "false (the pre_tokenizer is ByteLevel)");
  if (model_.HasValue("unk_token")) {
    MOED_ASSIGN_OR_RETURN(const std::string unk, model_.String("unk_token"));
    if (!Id(unk)) return model_.Wrong("unk_token", "a piece of model.vocab");
    bpe.unk = *Id(unk);
  }
  FindBytePieces();
  return absl::OkStatus();
}

absl::Status Compiler::ReadScoredPieces() {
  const Json& vocab = model_.json("vocab");
  constexpr size_t kMostPieces = 1u << 24;
  if (!vocab.is_array() || vocab.empty() || vocab.size() > kMostPieces)
    return model_.Wrong("vocab", "a list of pieces and scores");
  for (size_t i = 0; i < vocab.size(); ++i) {
    const Json& entry = vocab[i];
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      return InvalidArgument("model.vocab[", i, "] is not [piece, score]");
    }
    const auto& piece = entry[0].get_ref<const std::string&>();
    if (piece.size() > Unigram::kLongestPiece || !std::isfinite(entry[1].get<double>())) {
      return InvalidArgument("model.vocab[", i, "] has ", piece.size(), " bytes and the score ", entry[1].get<double>(),
                             "; supported: up to ", Unigram::kLongestPiece, " bytes and a finite score");
    }
    if (!ids_.emplace(piece, static_cast<uint32_t>(i)).second) {
      return InvalidArgument("model.vocab[", i, "]: '", piece, "' is there twice");
    }
    SetPiece(static_cast<uint32_t>(i), piece);
    scores_.push_back(entry[1].get<double>());
  }
  return absl::OkStatus();
}

absl::Status Compiler::ReadUnigramOptions() {
  BpeOptions& options = spec_.bpe;
  if (options.byte_level) return model_.Wrong("type", "BPE (the pre_tokenizer is ByteLevel)");
  MOED_ASSIGN_OR_RETURN(options.byte_fallback, model_.BoolOr("byte_fallback", false));
  if (!model_.HasValue("unk_id")) return model_.Wrong("unk_id", "the id of a piece");
  MOED_ASSIGN_OR_RETURN(options.unk, model_.Number("unk_id"));
  if (options.unk >= ids_.size()) return model_.Wrong("unk_id", "the id of a piece");
  FindBytePieces();
  return absl::OkStatus();
}

void Compiler::FindBytePieces() {
  BpeOptions& bpe = spec_.bpe;
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelled;
    if (bpe.byte_level) AppendUtf8(ByteLevelCharacter(static_cast<uint8_t>(byte)), spelled);
    if (bpe.byte_fallback) {
      constexpr std::string_view kHex = "0123456789ABCDEF";
      spelled = StrCat("<0x", kHex.substr(byte >> 4, 1), kHex.substr(byte & 15, 1), ">");
    }
    bpe.byte_pieces[byte] = Id(spelled).value_or(kNoPiece);
  }
}

// "left right" or ["left", "right"].
absl::Status Compiler::ReadMerge(const Json& json, size_t rank) {
  const auto wrong = [&](std::string_view why) { return InvalidArgument("model.merges[", rank, "] ", why); };
  std::string left, right;
  if (json.is_string()) {
    const std::string& pair = json.get_ref<const std::string&>();
    const size_t space = pair.find(' ');
    if (space == std::string::npos || pair.find(' ', space + 1) != std::string::npos)
      return wrong("is not two pieces with a space between");
    left = pair.substr(0, space);
    right = pair.substr(space + 1);
  } else if (json.is_array() && json.size() == 2 && json[0].is_string() && json[1].is_string()) {
    left = json[0].get<std::string>();
    right = json[1].get<std::string>();
  } else {
    return wrong("is neither \"left right\" nor [\"left\", \"right\"]");
  }
  const auto left_id = Id(left), right_id = Id(right), id = Id(left + right);
  if (!left_id || !right_id || !id) {
    return wrong(StrCat("has a piece that is not in model.vocab: '", !left_id ? left : !right_id ? right : left + right, "'"));
  }
  merges_.push_back({*left_id, *right_id, *id});
  merges_cross_boundary_ |= right.starts_with(kBoundary) && !left.ends_with(kBoundary);
  return absl::OkStatus();
}

absl::Status Compiler::ReadMerges() {
  const Json& merges = model_.json("merges");
  if (!merges.is_array()) return model_.Wrong("merges", "a list");
  for (size_t rank = 0; rank < merges.size(); ++rank) MOED_RETURN_IF_ERROR(ReadMerge(merges[rank], rank));
  if (CutsAtBoundary()) spec_.bpe.boundary = kBoundary;
  return absl::OkStatus();
}

// The boundary must be a piece, or an unknown character could wait across it; and unknown characters must leave a piece behind,
// or what stands around them would become neighbours.
bool Compiler::CutsAtBoundary() const {
  const BpeOptions& bpe = spec_.bpe;
  const bool keeps_unknown = bpe.unk != kNoPiece || (bpe.byte_fallback && std::ranges::count(bpe.byte_pieces, kNoPiece) == 0);
  return keeps_unknown && !bpe.byte_level && !bpe.ignore_merges && !merges_cross_boundary_ && Id(std::string(kBoundary));
}

absl::Status Compiler::ReadAddedToken(const Json& json, size_t index, uint32_t& highest_added, Ids& seen) {
  MOED_ASSIGN_OR_RETURN(const JsonPart part,
                        JsonPart::Open(json, StrCat("added_tokens[", index, "]"),
                                       {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
  AddedToken token;
  MOED_ASSIGN_OR_RETURN(token.id, part.Number("id"));
  MOED_ASSIGN_OR_RETURN(token.content, part.String("content"));
  MOED_ASSIGN_OR_RETURN(token.single_word, part.BoolOr("single_word", false));
  MOED_ASSIGN_OR_RETURN(token.lstrip, part.BoolOr("lstrip", false));
  MOED_ASSIGN_OR_RETURN(token.rstrip, part.BoolOr("rstrip", false));
  MOED_ASSIGN_OR_RETURN(token.special, part.BoolOr("special", false));
  MOED_ASSIGN_OR_RETURN(token.normalized, part.BoolOr("normalized", !token.special));
  if (token.content.empty()) return part.Wrong("content", "text that is not empty");
  if (token.content.size() > kLongestAddedToken) {
    return part.Wrong("content", StrCat("text of at most ", kLongestAddedToken, " bytes"));
  }
  if (!seen.emplace(token.content, token.id).second)
    return InvalidArgument(part.name(), ": '", token.content, "' is there twice");
  // The reference implementation numbers tokens that the model lacks itself, and so must the file.
  const auto pieces = static_cast<uint32_t>(ids_.size());
  const bool first_new = seen.size() == 1 || highest_added < pieces;
  const uint32_t expected = Id(token.content).value_or(first_new ? pieces : highest_added + 1);
  if (token.id != expected) return part.Wrong("id", StrCat(expected, " for '", token.content, "'"));
  highest_added = std::max(highest_added, token.id);
  SetPiece(token.id, token.content);
  spec_.added.push_back(std::move(token));
  return absl::OkStatus();
}

absl::Status Compiler::ReadAdded(const Json& list) {
  if (!list.is_array() && !list.is_null()) return InvalidArgument("added_tokens is not a list");
  uint32_t highest_added = 0;
  Ids seen;
  for (size_t i = 0; i < list.size(); ++i) MOED_RETURN_IF_ERROR(ReadAddedToken(list[i], i, highest_added, seen));
  std::stable_partition(spec_.added.begin(), spec_.added.end(), [](const AddedToken& token) { return token.special; });
  return NormalizeAdded();
}

absl::Status Compiler::NormalizeAdded() {
  MOED_ASSIGN_OR_RETURN(const Normalizer normalizer, Normalizer::Make(spec_.normalizer));
  for (AddedToken& token : spec_.added) {
    if (!token.normalized) continue;
    MOED_ASSIGN_OR_RETURN(token.content, normalizer.Apply(token.content));
  }
  return absl::OkStatus();
}

// Whether the model looks the piece up by its text. BPE: characters where they are symbols, and whole words where merges may be
// ignored. Unigram: all, but special tokens, which no text is cut into.
bool Compiler::IsFound(const std::string& spelled) const {
  if (spelled.empty()) return false;
  if (!scores_.empty()) {
    const auto is_it = [&](const AddedToken& token) { return token.special && pieces_[token.id] == spelled; };
    return std::ranges::none_of(spec_.added, is_it);
  }
  if (spec_.bpe.byte_level) return spec_.bpe.ignore_merges && FromByteLevel(spelled).has_value();
  return spec_.bpe.ignore_merges || FirstCharacterBytes(spelled) == spelled.size();
}

size_t Compiler::Build(PerBlobSection<std::string>& sections) {
  std::vector<uint32_t> found;
  for (const auto& [spelled, id] : ids_) {
    if (IsFound(spelled)) found.push_back(id);
  }
  std::ranges::sort(found);
  BuildVocabulary(pieces_, found, merges_, sections);
  if (!scores_.empty()) {
    scores_.resize(pieces_.size());
    sections[static_cast<size_t>(BlobSection::kScores)].assign(reinterpret_cast<const char*>(scores_.data()),
                                                               scores_.size() * sizeof(double));
  }
  return pieces_.size();
}

}  // namespace

absl::StatusOr<size_t> CompileVocabulary(const Json& root, TokenizerSpec& spec, PerBlobSection<std::string>& sections) {
  const Json null;
  const auto part = [&](const char* key) -> const Json& { return root.contains(key) ? root.at(key) : null; };
  MOED_ASSIGN_OR_RETURN(const std::string type, TypeOf(part("model"), "model"));
  if (type == "Unigram") {
    MOED_ASSIGN_OR_RETURN(const JsonPart model,
                          JsonPart::Open(part("model"), "model", {"type", "unk_id", "vocab", "byte_fallback"}));
    Compiler compiler(model, spec);
    MOED_RETURN_IF_ERROR(compiler.ReadScoredPieces());
    MOED_RETURN_IF_ERROR(compiler.ReadUnigramOptions());
    MOED_RETURN_IF_ERROR(compiler.ReadAdded(part("added_tokens")));
    return compiler.Build(sections);
  }
  if (type != "BPE") return InvalidArgument("model of type ", type, " is not supported; supported: BPE, Unigram");
  MOED_ASSIGN_OR_RETURN(const JsonPart model,
                        JsonPart::Open(part("model"), "model",
                                       {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                                        "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
  Compiler compiler(model, spec);
  MOED_RETURN_IF_ERROR(compiler.ReadPieces());
  MOED_RETURN_IF_ERROR(compiler.ReadOptions());
  MOED_RETURN_IF_ERROR(compiler.ReadMerges());
  MOED_RETURN_IF_ERROR(compiler.ReadAdded(part("added_tokens")));
  return compiler.Build(sections);
}

}  // namespace moed
