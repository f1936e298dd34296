#include "core/tokenizer/tokenizer_spec.h"

#include "core/base/status.h"
#include "core/tokenizer/blob.h"
#include "core/tokenizer/unicode.h"

namespace moed {
namespace {

// One description of the record for both directions: Writer and Reader offer the same verbs.
class Writer {
 public:
  void Field(const bool& value) { out_.U8(value); }
  void Field(const uint32_t& value) { out_.U32(value); }
  void Field(const std::string& value) { out_.String(value); }
  template <class E>
  void Enum(const E& value, uint8_t) {
    out_.U8(static_cast<uint8_t>(value));
  }
  template <class T, class Each>
  void List(const std::vector<T>& items, Each each) {
    out_.U32(static_cast<uint32_t>(items.size()));
    for (const T& item : items) each(item);
  }
  std::string Take() { return out_.Take(); }

 private:
  FieldWriter out_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : in_(bytes) {}
  void Field(bool& value) {
    const uint8_t byte = in_.U8();
    if (byte > 1) in_.Fail();
    value = byte == 1;
  }
  void Field(uint32_t& value) { value = in_.U32(); }
  void Field(std::string& value) { value = in_.String(); }
  template <class E>
  void Enum(E& value, uint8_t kinds) {
    const uint8_t byte = in_.U8();
    if (byte >= kinds) return in_.Fail();
    value = static_cast<E>(byte);
  }
  template <class T, class Each>
  void List(std::vector<T>& items, Each each) {
    constexpr size_t kLeastItemBytes = 4;
    items.resize(in_.Count(kLeastItemBytes));
    for (T& item : items) each(item);
  }
  bool done() const { return in_.ok() && in_.at_end(); }

 private:
  FieldReader in_;
};

template <class Io, class Spec>
void Transfer(Io& io, Spec& spec) {
  auto& bpe = spec.bpe;
  io.Field(bpe.byte_level);
  io.Field(bpe.ignore_merges);
  io.Field(bpe.byte_fallback);
  io.Field(bpe.fuse_unk);
  io.Field(bpe.unk);
  io.Field(bpe.boundary);
  for (auto& piece : bpe.byte_pieces) io.Field(piece);
  io.List(spec.normalizer, [&](auto& step) {
    io.Enum(step.kind, NormalizerStep::kKinds);
    io.Field(step.literal);
    io.Field(step.pattern);
    io.Field(step.content);
  });
  io.List(spec.pre_tokenizer, [&](auto& step) {
    io.Field(step.space);
    io.Enum(step.prefix_rule, kPrefixRules);
    io.Field(step.prefix);
    io.Field(step.pattern);
    io.Field(step.literal);
    io.Field(step.invert);
    io.Enum(step.behavior, kSplitBehaviors);
  });
  io.List(spec.added, [&](auto& token) {
    io.Field(token.id);
    io.Field(token.content);
    io.Field(token.special);
    io.Field(token.lstrip);
    io.Field(token.rstrip);
    io.Field(token.single_word);
    io.Field(token.normalized);
  });
  io.List(spec.prefix_ids, [&](auto& id) { io.Field(id); });
  io.List(spec.suffix_ids, [&](auto& id) { io.Field(id); });
  auto& decoder = spec.decoder;
  io.List(decoder.replacements, [&](auto& replacement) {
    io.Field(replacement.from);
    io.Field(replacement.to);
  });
  io.Field(decoder.byte_fallback);
  io.Field(decoder.first_piece_drops);
  io.Field(decoder.strip);
  io.Field(decoder.strip_count);
}

bool IdsAreBelow(const TokenizerSpec& spec, size_t pieces) {
  const auto known = [&](uint32_t id) { return id < pieces; };
  bool all = spec.bpe.unk == kNoPiece || known(spec.bpe.unk);
  for (const uint32_t id : spec.bpe.byte_pieces) all &= id == kNoPiece || known(id);
  for (const AddedToken& token : spec.added) all &= known(token.id);
  for (const auto* ids : {&spec.prefix_ids, &spec.suffix_ids}) {
    for (const uint32_t id : *ids) all &= known(id);
  }
  return all;
}

bool StringsAreFilled(const TokenizerSpec& spec) {
  bool all = spec.decoder.strip_count == 0 || !spec.decoder.strip.empty();
  for (const AddedToken& token : spec.added) all &= !token.content.empty();
  for (const auto& replacement : spec.decoder.replacements) all &= !replacement.from.empty();
  return all;
}

bool IsUtf8(const std::string& text) { return !FirstInvalidByte(text); }

// That one step makes a text longer is bounded by its characters, and that none does so again for the next.
bool IsSpace(const std::string& space) {
  constexpr size_t kLongestCharacter = 4;
  return space == " " || (space.size() <= kLongestCharacter && space.find(' ') == std::string::npos);
}

absl::Status CheckSteps(const TokenizerSpec& spec) {
  for (const size_t steps : {spec.normalizer.size(), spec.pre_tokenizer.size(), spec.decoder.replacements.size()}) {
    if (steps > kMostTokenizerSteps) return DataLoss(steps, " steps of a kind, at most ", kMostTokenizerSteps, " are allowed");
  }
  for (const NormalizerStep& step : spec.normalizer) {
    if (step.kind != NormalizerStep::Kind::kPrecompiled && !IsUtf8(step.content)) return DataLoss("a text that is not UTF-8");
  }
  for (const PreTokenizerStep& step : spec.pre_tokenizer) {
    const bool characters = IsSpace(step.space) && IsSpace(step.prefix);
    if (!characters || !IsUtf8(step.space) || !IsUtf8(step.prefix)) return DataLoss("a space that is not one character");
  }
  for (const AddedToken& token : spec.added) {
    if (token.content.size() <= kLongestAddedToken) continue;
    return DataLoss("added token ", token.id, " has ", token.content.size(), " bytes, at most ", kLongestAddedToken,
                    " are allowed");
  }
  return absl::OkStatus();
}

}  // namespace

std::string SerializeSpec(const TokenizerSpec& spec) {
  Writer writer;
  Transfer(writer, spec);
  return writer.Take();
}

absl::StatusOr<TokenizerSpec> ParseSpec(std::string_view bytes, size_t pieces) {
  TokenizerSpec spec;
  Reader reader(bytes);
  Transfer(reader, spec);
  if (!reader.done()) return DataLoss("compiled tokenizer: the description of its steps is damaged");
  if (!IdsAreBelow(spec, pieces)) return DataLoss("compiled tokenizer: an id is outside the vocabulary");
  if (!StringsAreFilled(spec)) return DataLoss("compiled tokenizer: an added token or a decoder step has no text");
  if (const absl::Status checked = CheckSteps(spec); !checked.ok()) return DataLoss("compiled tokenizer: ", checked.message());
  return spec;
}

}  // namespace moed
