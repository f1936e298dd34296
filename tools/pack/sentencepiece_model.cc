#include "tools/pack/sentencepiece_model.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/escaping.h"
#include "core/base/status.h"
#include "core/tokenizer/unicode.h"
#include "google/protobuf/io/coded_stream.h"

namespace moed {
namespace {

using google::protobuf::io::CodedInputStream;
using Json = nlohmann::json;

constexpr uint32_t kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;  // wire types
constexpr uint64_t kNormal = 1, kUnknown = 2, kControl = 3;              // types of pieces
constexpr uint64_t kUnigram = 1;
constexpr std::string_view kEnd = "</s>";

struct Field {
  uint32_t number = 0;
  uint32_t wire_type = 0;
  uint64_t value = 0;
  std::string_view bytes;
  bool Is(uint32_t wanted, uint32_t type) const { return number == wanted && wire_type == type; }
};

bool ReadField(CodedInputStream& in, std::string_view message, Field& field) {
  const uint32_t tag = in.ReadTagNoLastTag();
  field = {.number = tag >> 3, .wire_type = tag & 7, .value = 0, .bytes = {}};
  uint32_t small = 0;
  switch (field.wire_type) {
    case kVarint:
      return in.ReadVarint64(&field.value);
    case kFixed64:
      return in.ReadLittleEndian64(&field.value);
    case kFixed32:
      if (!in.ReadLittleEndian32(&small)) return false;
      field.value = small;
      return true;
    case kBytes: {
      if (!in.ReadVarint32(&small)) return false;
      const auto at = static_cast<size_t>(in.CurrentPosition());
      if (small > message.size() - at) return false;
      field.bytes = message.substr(at, small);
      return in.Skip(static_cast<int>(small));
    }
    default:
      return false;
  }
}

// body(field) for each field of a message until one fails.
absl::Status ForEachField(std::string_view message, absl::FunctionRef<absl::Status(const Field&)> body) {
  if (message.size() > INT32_MAX) return InvalidArgument("more than 2 GiB");
  CodedInputStream in(reinterpret_cast<const uint8_t*>(message.data()), static_cast<int>(message.size()));
  while (static_cast<size_t>(in.CurrentPosition()) < message.size()) {
    Field field;
    if (!ReadField(in, message, field)) return InvalidArgument("no protobuf, or one that is cut off");
    MOED_RETURN_IF_ERROR(body(field));
  }
  return absl::OkStatus();
}

struct Piece {
  std::string text;
  float score = 0;
  uint64_t type = kNormal;
};

absl::StatusOr<Piece> ReadPiece(std::string_view message, size_t index) {
  Piece piece;
  MOED_RETURN_IF_ERROR(ForEachField(message, [&](const Field& field) {
    if (field.Is(1, kBytes)) piece.text = field.bytes;
    if (field.Is(2, kFixed32)) piece.score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    if (field.Is(3, kVarint)) piece.type = field.value;
    return absl::OkStatus();
  }));
  if (piece.text.empty() || FirstInvalidByte(piece.text)) return InvalidArgument("piece ", index, " is no text");
  if (!std::isfinite(piece.score)) return InvalidArgument("piece ", index, " has the score ", piece.score);
  if (piece.type >= kNormal && piece.type <= kControl) return piece;
  return InvalidArgument("piece ", index, " is of type ", piece.type, "; supported: NORMAL, UNKNOWN, CONTROL");
}

// A number that the file may have, and the one that is supported.
struct OnlyNumber {
  uint32_t field;
  std::string_view name;
  uint64_t supported;
};
constexpr OnlyNumber kOfTrainer[] = {
    {3, "model_type", kUnigram}, {24, "treat_whitespace_as_suffix", 0}, {35, "byte_fallback", 0}};
constexpr OnlyNumber kOfNormalizer[] = {
    {3, "add_dummy_prefix", 1}, {4, "remove_extra_whitespaces", 1}, {5, "escape_whitespaces", 1}};

absl::Status CheckNumbers(const Field& field, std::span<const OnlyNumber> numbers) {
  for (const auto& [number, name, supported] : numbers) {
    if (field.Is(number, kVarint) && field.value != supported) {
      return InvalidArgument(name, " = ", field.value, "; supported: ", supported);
    }
  }
  return absl::OkStatus();
}

class TokenizerJson {
 public:
  absl::Status Add(Piece piece) {
    if (piece.type == kUnknown) {
      if (unknown_ >= 0) return InvalidArgument("two pieces are UNKNOWN");
      unknown_ = static_cast<int64_t>(vocabulary_.size());
    }
    if (piece.text == kEnd) end_ = static_cast<int64_t>(vocabulary_.size());
    AddToken(piece.text, piece.score, piece.type != kNormal);
    return absl::OkStatus();
  }
  void AddToken(const std::string& text, float score, bool special) {
    if (special) {
      added_.push_back({{"id", vocabulary_.size()},
                        {"content", text},
                        {"single_word", false},
                        {"lstrip", false},
                        {"rstrip", false},
                        {"normalized", false},
                        {"special", true}});
    }
    vocabulary_.push_back({text, static_cast<double>(score)});
  }
  void SetMap(std::string_view map) {
    normalizer_ = {{"type", "Precompiled"}, {"precompiled_charsmap", absl::Base64Escape(std::string(map))}};
  }
  absl::StatusOr<std::string> Finish() {
    if (unknown_ < 0) return InvalidArgument("no piece is UNKNOWN");
    if (end_ < 0) return InvalidArgument("there is no piece ", kEnd);
    const Json metaspace = {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}, {"split", true}};
    const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    const Json end = {{"SpecialToken", {{"id", kEnd}, {"type_id", 0}}}};
    const Json ids = {{"id", kEnd}, {"ids", {end_}}, {"tokens", {kEnd}}};
    const Json json = {{"version", "1.0"},
                       {"added_tokens", added_},
                       {"normalizer", normalizer_},
                       {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {{{"type", "WhitespaceSplit"}}, metaspace}}}},
                       {"post_processor",
                        {{"type", "TemplateProcessing"},
                         {"single", Json::array({text, end})},
                         {"pair", Json::array({text, end})},
                         {"special_tokens", {{kEnd, ids}}}}},
                       {"decoder", metaspace},
                       {"model", {{"type", "Unigram"}, {"unk_id", unknown_}, {"vocab", vocabulary_}, {"byte_fallback", false}}}};
    return json.dump();
  }

 private:
  std::vector<std::pair<std::string, double>> vocabulary_;
  Json added_ = Json::array();
  Json normalizer_;
  int64_t unknown_ = -1, end_ = -1;
};

absl::StatusOr<std::string> Translate(std::string_view model, int extra_ids) {
  TokenizerJson json;
  size_t pieces = 0;
  MOED_RETURN_IF_ERROR(ForEachField(model, [&](const Field& field) -> absl::Status {
    if (field.Is(1, kBytes)) {
      MOED_ASSIGN_OR_RETURN(Piece piece, ReadPiece(field.bytes, pieces++));
      return json.Add(std::move(piece));
    }
    if (field.Is(2, kBytes)) {
      return ForEachField(field.bytes, [](const Field& number) { return CheckNumbers(number, kOfTrainer); });
    }
    if (!field.Is(3, kBytes)) return absl::OkStatus();
    return ForEachField(field.bytes, [&](const Field& part) {
      if (part.Is(2, kBytes) && !part.bytes.empty()) json.SetMap(part.bytes);
      return CheckNumbers(part, kOfNormalizer);
    });
  }));
  for (int id = extra_ids; id-- > 0;) json.AddToken(StrCat("<extra_id_", id, ">"), 0, true);
  return json.Finish();
}

}  // namespace

absl::StatusOr<std::string> SentencePieceTokenizer(std::string_view model, int extra_ids) {
  absl::StatusOr<std::string> json = Translate(model, extra_ids);
  return json.ok() ? json : InvalidArgument("spiece.model: ", json.status().message());
}

}  // namespace moed
