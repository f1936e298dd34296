#include "tools/pack/gguf/tokenizer.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/base/utf8.h"
#include "nlohmann/json.hpp"
#include "tools/pack/gguf/pre_tokenizers.h"

namespace moed {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, SentencePiece's space

enum TokenType : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct Vocabulary {
  const std::vector<std::string>* texts;
  const std::vector<int64_t>* types;

  size_t size() const { return texts->size(); }
  const std::string& text(size_t id) const { return (*texts)[id]; }
  // Converters fill ids that have no token, so that there are as many as rows of the embedding.
  bool IsPadding(size_t id) const { return (*types)[id] == kUnused && text(id) == StrCat("[PAD", id, "]"); }
};

absl::StatusOr<Vocabulary> ReadVocabulary(const GgufMetadata& metadata) {
  Vocabulary vocabulary;
  MOED_ASSIGN_OR_RETURN(vocabulary.texts, metadata.Strings("tokenizer.ggml.tokens"));
  MOED_ASSIGN_OR_RETURN(vocabulary.types, metadata.Ints("tokenizer.ggml.token_type"));
  if (vocabulary.types->size() != vocabulary.size()) {
    return InvalidArgument("key tokenizer.ggml.token_type has ", vocabulary.types->size(), " elements, tokenizer.ggml.tokens ",
                           vocabulary.size());
  }
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    const int64_t type = (*vocabulary.types)[id];
    if (type < kNormal || type > kByte) {
      return InvalidArgument("key tokenizer.ggml.token_type[", id, "] is ", type, ", allowed: ", kNormal, " to ", kByte);
    }
    if (vocabulary.text(id).empty() || !IsValidUtf8(vocabulary.text(id))) {
      return InvalidArgument("key tokenizer.ggml.tokens[", id, "] is ", ShownGgufValue(vocabulary.text(id)),
                             ", allowed: UTF-8 that is not empty");
    }
  }
  return vocabulary;
}

absl::StatusOr<Json> PiecesJson(const Vocabulary& vocabulary) {
  Json pieces = Json::object();
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.IsPadding(id)) continue;
    const auto [at, inserted] = pieces.emplace(vocabulary.text(id), id);
    if (!inserted) {
      return InvalidArgument("keys tokenizer.ggml.tokens[", at.value().get<size_t>(), "] and [", id, "] are both ",
                             ShownGgufValue(vocabulary.text(id)));
    }
  }
  return pieces;
}

Json AddedJson(const Vocabulary& vocabulary) {
  Json added = Json::array();
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    const int64_t type = (*vocabulary.types)[id];
    if (type != kUnknown && type != kControl && type != kUserDefined) continue;
    added.push_back({{"id", id},
                     {"content", vocabulary.text(id)},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", type != kUserDefined}});
  }
  return added;
}

// BOS before and EOS behind a text, null where there are neither.
absl::StatusOr<Json> PostProcessorJson(const GgufMetadata& metadata, const Vocabulary& vocabulary, bool adds_bos) {
  Json single = Json::array(), special = Json::object();
  const auto add = [&](std::string_view key) -> absl::Status {
    MOED_ASSIGN_OR_RETURN(const int64_t id, metadata.Int(key, 0, static_cast<int64_t>(vocabulary.size()) - 1));
    const std::string& text = vocabulary.text(static_cast<size_t>(id));
    single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
    special[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
    return absl::OkStatus();
  };
  MOED_ASSIGN_OR_RETURN(const bool bos, metadata.BoolOr("tokenizer.ggml.add_bos_token", adds_bos));
  MOED_ASSIGN_OR_RETURN(const bool eos, metadata.BoolOr("tokenizer.ggml.add_eos_token", false));
  if (!bos && !eos) return Json();
  if (bos) MOED_RETURN_IF_ERROR(add("tokenizer.ggml.bos_token_id"));
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (eos) MOED_RETURN_IF_ERROR(add("tokenizer.ggml.eos_token_id"));
  return Json{{"type", "TemplateProcessing"}, {"single", single}, {"pair", Json::array()}, {"special_tokens", special}};
}

Json ByteLevelJson(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json SequenceJson(const char* members, Json steps) { return {{"type", "Sequence"}, {members, std::move(steps)}}; }

// Writers leave out an array without elements; only a vocabulary of single characters does without merges.
bool NeedsMerges(const Vocabulary& vocabulary) {
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    const std::string& text = vocabulary.text(id);
    if ((*vocabulary.types)[id] == kNormal && !std::all_of(text.begin() + 1, text.end(), IsContinuation)) return true;
  }
  return false;
}

absl::StatusOr<Json> MergesJson(const GgufMetadata& metadata, const Vocabulary& vocabulary) {
  if (!metadata.Has("tokenizer.ggml.merges") && !NeedsMerges(vocabulary)) return Json::array();
  MOED_ASSIGN_OR_RETURN(const std::vector<std::string>* merges, metadata.Strings("tokenizer.ggml.merges"));
  for (size_t i = 0; i < merges->size(); ++i) {
    if (!IsValidUtf8((*merges)[i])) return InvalidArgument("key tokenizer.ggml.merges[", i, "] is not UTF-8");
  }
  return Json(*merges);
}

absl::StatusOr<Json> ByteLevelBpe(const GgufMetadata& metadata, const Vocabulary& vocabulary) {
  MOED_ASSIGN_OR_RETURN(const std::string name, metadata.String("tokenizer.ggml.pre"));
  MOED_ASSIGN_OR_RETURN(const GgufPreTokenizer* pre, PreTokenizerNamed(name));
  Json steps = Json::array();
  for (const std::string_view pattern : pre->patterns) {
    steps.push_back({{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  steps.push_back(ByteLevelJson(pre->gpt2_pattern));
  Json root;
  root["normalizer"] = pre->composes ? Json{{"type", "NFC"}} : Json();
  root["pre_tokenizer"] = SequenceJson("pretokenizers", std::move(steps));
  root["decoder"] = ByteLevelJson(true);
  MOED_ASSIGN_OR_RETURN(root["post_processor"], PostProcessorJson(metadata, vocabulary, pre->adds_bos));
  root["model"] = {{"type", "BPE"}, {"ignore_merges", pre->ignore_merges}};
  MOED_ASSIGN_OR_RETURN(root["model"]["merges"], MergesJson(metadata, vocabulary));
  return root;
}

// SentencePiece merges what becomes the piece of the best score. As a list of merges: those of better pieces come first, and of
// two ways to one piece that with the longer left part.
class ScoredMerges {
 public:
  ScoredMerges(const Vocabulary& vocabulary, const std::vector<double>& scores) : vocabulary_(vocabulary), scores_(scores) {
    for (size_t id = 0; id < vocabulary.size(); ++id) ids_.emplace(vocabulary.text(id), id);
  }

  Json List() const {
    std::vector<Merge> merges;
    for (size_t id = 0; id < vocabulary_.size(); ++id) AddWays(id, merges);
    std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
      return std::tie(a.score, a.left_characters, a.right_characters) > std::tie(b.score, b.left_characters, b.right_characters);
    });
    Json list = Json::array();
    for (const Merge& merge : merges) list.push_back({vocabulary_.text(merge.left), vocabulary_.text(merge.right)});
    return list;
  }

 private:
  struct Merge {
    double score;
    size_t left_characters, right_characters;
    size_t left, right;  // ids
  };

  // Every way to cut the piece into two, in the order of their ids.
  void AddWays(size_t id, std::vector<Merge>& merges) const {
    const std::string_view text = vocabulary_.text(id);
    const size_t characters = CountCharacters(text);
    const size_t first = merges.size();
    size_t before = 0;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if (IsContinuation(text[cut])) continue;
      ++before;
      const auto left = ids_.find(text.substr(0, cut));
      if (left == ids_.end()) continue;
      const auto right = ids_.find(text.substr(cut));
      if (right != ids_.end()) merges.push_back({scores_[id], before, characters - before, left->second, right->second});
    }
    std::sort(merges.begin() + static_cast<std::ptrdiff_t>(first), merges.end(),
              [](const Merge& a, const Merge& b) { return std::tie(a.left, a.right) < std::tie(b.left, b.right); });
  }

  const Vocabulary& vocabulary_;
  const std::vector<double>& scores_;
  std::unordered_map<std::string_view, size_t> ids_;
};

Json ReplaceJson(std::string_view from, std::string_view to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

absl::StatusOr<Json> SentencePieceBpe(const GgufMetadata& metadata, const Vocabulary& vocabulary) {
  MOED_ASSIGN_OR_RETURN(const std::vector<double>* scores, metadata.Numbers("tokenizer.ggml.scores"));
  if (scores->size() != vocabulary.size()) {
    return InvalidArgument("key tokenizer.ggml.scores has ", scores->size(), " elements, tokenizer.ggml.tokens ",
                           vocabulary.size());
  }
  MOED_ASSIGN_OR_RETURN(const bool squeezes, metadata.BoolOr("tokenizer.ggml.remove_extra_whitespaces", false));
  if (squeezes) return InvalidArgument("key tokenizer.ggml.remove_extra_whitespaces is true, allowed: false");
  MOED_ASSIGN_OR_RETURN(const bool space_first, metadata.BoolOr("tokenizer.ggml.add_space_prefix", true));
  MOED_ASSIGN_OR_RETURN(const int64_t unknown,
                        metadata.IntOr("tokenizer.ggml.unknown_token_id", 0, 0, static_cast<int64_t>(vocabulary.size()) - 1));
  Json normalizers = Json::array();
  if (space_first) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  normalizers.push_back(ReplaceJson(" ", kSpace));
  Json decoders = {ReplaceJson(kSpace, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (space_first) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  Json root;
  root["normalizer"] = SequenceJson("normalizers", std::move(normalizers));
  root["pre_tokenizer"] = Json();
  root["decoder"] = SequenceJson("decoders", std::move(decoders));
  MOED_ASSIGN_OR_RETURN(root["post_processor"], PostProcessorJson(metadata, vocabulary, true));
  root["model"] = {{"type", "BPE"},
                   {"unk_token", vocabulary.text(static_cast<size_t>(unknown))},
                   {"fuse_unk", true},
                   {"byte_fallback", true},
                   {"ignore_merges", false}};
  root["model"]["merges"] = ScoredMerges(vocabulary, *scores).List();
  return root;
}

// Merges of the file over whole texts, whose spaces are SentencePiece's.
absl::StatusOr<Json> SpacedBpe(const GgufMetadata& metadata, const Vocabulary& vocabulary, bool adds_bos) {
  MOED_ASSIGN_OR_RETURN(const bool space_first, metadata.BoolOr("tokenizer.ggml.add_space_prefix", false));
  if (space_first) return InvalidArgument("key tokenizer.ggml.add_space_prefix is true, allowed: false");
  MOED_ASSIGN_OR_RETURN(const int64_t unknown,
                        metadata.IntOr("tokenizer.ggml.unknown_token_id", 0, 0, static_cast<int64_t>(vocabulary.size()) - 1));
  Json root;
  root["normalizer"] = ReplaceJson(" ", kSpace);
  root["pre_tokenizer"] = Json();
  root["decoder"] = SequenceJson("decoders", {ReplaceJson(kSpace, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}});
  MOED_ASSIGN_OR_RETURN(root["post_processor"], PostProcessorJson(metadata, vocabulary, adds_bos));
  root["model"] = {{"type", "BPE"},
                   {"unk_token", vocabulary.text(static_cast<size_t>(unknown))},
                   {"fuse_unk", true},
                   {"byte_fallback", true},
                   {"ignore_merges", false}};
  MOED_ASSIGN_OR_RETURN(root["model"]["merges"], MergesJson(metadata, vocabulary));
  return root;
}

absl::StatusOr<Json> Gemma4Bpe(const GgufMetadata& metadata, const Vocabulary& vocabulary) {
  return SpacedBpe(metadata, vocabulary, true);
}

// Sarvam's pieces are SentencePiece's as well: its pre-tokenizer says so, not its model.
absl::StatusOr<Json> Gpt2Bpe(const GgufMetadata& metadata, const Vocabulary& vocabulary) {
  const auto pre = metadata.String("tokenizer.ggml.pre");
  if (pre.ok() && *pre == "sarvam-moe") return SpacedBpe(metadata, vocabulary, false);
  return ByteLevelBpe(metadata, vocabulary);
}

struct TokenizerModel {
  std::string_view name;
  absl::StatusOr<Json> (*make)(const GgufMetadata& metadata, const Vocabulary& vocabulary);
};
constexpr TokenizerModel kModels[] = {{"gpt2", Gpt2Bpe}, {"llama", SentencePieceBpe}, {"gemma4", Gemma4Bpe}};

}  // namespace

absl::StatusOr<std::string> TokenizerJson(const GgufMetadata& metadata) {
  MOED_ASSIGN_OR_RETURN(const std::string name, metadata.String("tokenizer.ggml.model"));
  const auto model = std::ranges::find(kModels, name, &TokenizerModel::name);
  if (model == std::end(kModels)) {
    return InvalidArgument("key tokenizer.ggml.model is ", ShownGgufValue(name),
                           ", known: ", JoinNames(kModels, [](const TokenizerModel& known) { return known.name; }));
  }
  MOED_ASSIGN_OR_RETURN(const Vocabulary vocabulary, ReadVocabulary(metadata));
  if (vocabulary.size() == 0) return InvalidArgument("key tokenizer.ggml.tokens is empty");
  MOED_ASSIGN_OR_RETURN(Json root, model->make(metadata, vocabulary));
  MOED_ASSIGN_OR_RETURN(root["model"]["vocab"], PiecesJson(vocabulary));
  root["added_tokens"] = AddedJson(vocabulary);
  return root.dump();
}

}  // namespace moed
