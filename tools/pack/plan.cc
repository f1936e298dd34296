#include "tools/pack/plan.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/shape_name.h"
#include "core/base/status.h"
#include "core/base/version.h"
#include "core/model/expert_shapes.h"
#include "core/model/family.h"
#include "core/store/checksum.h"
#include "core/store/expert_norms.h"
#include "core/store/header.h"
#include "core/tokenizer/chat_settings.h"
#include "core/tokenizer/tokenizer.h"
#include "tools/pack/chat_settings.h"

namespace moed {
namespace {

constexpr std::string_view kHeadTensor = "lm_head.weight";

absl::StatusOr<bool> MeansNone(const SourceTensor& tensor) {
  if (!tensor.zeros_mean_none || tensor.shape.size() != 1 || !tensor.type->is_numbers()) return false;
  std::vector<std::byte> raw;
  MOED_RETURN_IF_ERROR(ReadRows(tensor, 0, 1, raw));
  std::vector<float> numbers(tensor.shape[0]);
  DecodeRow(*tensor.type, raw.data(), static_cast<int>(numbers.size()), numbers.data());
  return std::ranges::all_of(numbers, [](float number) { return number == 0; });
}

std::string FormatsThatAreMade() {
  std::string names;
  for (const Format& format : Formats()) {
    if (Makes(QuantizerId::kRtn, format.id)) names += StrCat(names.empty() ? "" : ", ", format.name);
  }
  return names;
}

// Finds the tensors a family asks for and remembers which were asked for.
class TensorFinder {
 public:
  explicit TensorFinder(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  absl::StatusOr<const SourceTensor*> Take(const std::string& name, std::vector<uint64_t> shape) {
    const SourceTensor* tensor = checkpoint_.Find(name);
    if (tensor == nullptr) {
      return InvalidArgument(checkpoint_.path(), ": tensor \"", name, "\" of shape ", ShapeName(shape), " is missing");
    }
    if (tensor->shape != shape) {
      return InvalidArgument(tensor->file->path(), ": tensor \"", name, "\" has shape ", ShapeName(tensor->shape), ", expected ",
                             ShapeName(shape));
    }
    if (!tensor->type->is_numbers()) {
      return InvalidArgument(tensor->file->path(), ": tensor \"", name, "\" is ", tensor->type->name, ", expected numbers");
    }
    taken_.insert(tensor->name);
    return tensor;
  }

  absl::Status CheckNothingLeft() const {
    std::string_view first;
    size_t unknown = 0;
    for (const std::string_view name : checkpoint_.Names()) {
      if (checkpoint_.IsUnused(name) || taken_.contains(name)) continue;
      MOED_ASSIGN_OR_RETURN(const bool none, MeansNone(*checkpoint_.Find(name)));
      if (!none && unknown++ == 0) first = name;
    }
    if (unknown == 0) return absl::OkStatus();
    const SourceTensor& tensor = *checkpoint_.Find(first);
    return InvalidArgument(tensor.file->path(), ": unknown tensor \"", first, "\" of shape ", ShapeName(tensor.shape), "; a ",
                           checkpoint_.family().model_type, " model with this ", checkpoint_.described_by(),
                           " has none of that name", unknown > 1 ? StrCat(" (", unknown - 1, " more unknown tensors)") : "");
  }

 private:
  const Checkpoint& checkpoint_;
  std::set<std::string_view> taken_;
};

// Some exporters write a tensor although it is the embedding: allowed when it really is.
absl::Status CheckIsEmbedding(const SourceTensor& embed, const SourceTensor& head, std::string_view why) {
  constexpr size_t kChunkBytes = 1 << 20;
  std::vector<std::byte> a(kChunkBytes), b(kChunkBytes);
  bool same = embed.type == head.type;
  for (uint64_t done = 0; same && done < embed.bytes; done += kChunkBytes) {
    const size_t count = std::min<uint64_t>(kChunkBytes, embed.bytes - done);
    MOED_RETURN_IF_ERROR(embed.file->ReadAt(embed.offset + done, std::span(a).first(count)));
    MOED_RETURN_IF_ERROR(head.file->ReadAt(head.offset + done, std::span(b).first(count)));
    same = std::equal(a.begin(), a.begin() + count, b.begin());
  }
  if (same) return absl::OkStatus();
  return InvalidArgument(head.file->path(), ": tensor \"", head.name, "\" differs from \"", embed.name,
                         "\", expected the same numbers since ", why);
}

// Of the tensors that may be written beside the embedding those that are.
absl::Status TakeCopies(const SourceTensor& embed, const Checkpoint& checkpoint, const ModelSpec& spec, TensorFinder& finder) {
  const auto take = [&](std::string_view name, std::string_view why) -> absl::Status {
    if (checkpoint.Find(name) == nullptr) return absl::OkStatus();
    MOED_ASSIGN_OR_RETURN(const SourceTensor* copy, finder.Take(std::string(name), embed.shape));
    return CheckIsEmbedding(embed, *copy, why);
  };
  if (spec.tied_embeddings) MOED_RETURN_IF_ERROR(take(kHeadTensor, "config.json says tie_word_embeddings"));
  if (!spec.encoder) return absl::OkStatus();
  MOED_RETURN_IF_ERROR(take("encoder.embed_tokens.weight", "encoder and decoder have one embedding"));
  return take("decoder.embed_tokens.weight", "encoder and decoder have one embedding");
}

// `source`: of a matrix. Blocks are kept as they are, plain numbers in the format that holds the same.
MatrixTarget TargetOf(const EncodingOrKeep& encoding, const SourceTensor& source) {
  if (encoding) return {*encoding};
  return {Encoding{source.type->kept}, source.type->block_columns > 1};
}

absl::Status PlanTrunk(const EncodingOrKeep& encoding, TensorFinder& finder, const Checkpoint& checkpoint, PackPlan& plan) {
  for (const TrunkTensor& wanted : checkpoint.family().trunk_tensors(plan.spec)) {
    const bool vector = wanted.role == TensorRole::kVector;
    MOED_ASSIGN_OR_RETURN(const SourceTensor* source, finder.Take(checkpoint.NameOf(wanted), checkpoint.ShapeOf(wanted)));
    const MatrixTarget target = vector                               ? MatrixTarget{}
                                : wanted.role == TensorRole::kRouter ? MatrixTarget{Encoding{source->number_format()}}
                                                                     : TargetOf(encoding, *source);
    plan.description.trunk.push_back({.name = wanted.store_name,
                                      .format = target.encoding.format,
                                      .vector = vector,
                                      .rows = wanted.stored_rows(),
                                      .cols = wanted.stored_cols()});
    plan.trunk.push_back(source);
    plan.trunk_targets.push_back(target);
    plan.trunk_spellings.push_back(checkpoint.SpellingOf(wanted));
    plan.trunk_head_factors.push_back(wanted.head_factor);
    if (wanted.store_name == "embed") MOED_RETURN_IF_ERROR(TakeCopies(*source, checkpoint, plan.spec, finder));
  }
  plan.description.trunk.push_back({.name = std::string(kInverseFrequencies),
                                    .format = FormatId::kF32,
                                    .vector = true,
                                    .rows = 1,
                                    .cols = plan.spec.FirstFrequency(plan.spec.rotation_count())});
  plan.trunk.push_back(nullptr);
  plan.trunk_targets.emplace_back();
  plan.trunk_spellings.emplace_back();
  plan.trunk_head_factors.emplace_back();
  return absl::OkStatus();
}

// Experts of a layer have the same target: that of the layer's first one.
absl::StatusOr<PartTargets> TargetsOfLayer(const EncodingOrKeep& encoding, const PackPlan& plan, size_t moe_layer) {
  PartTargets targets;
  for (const ExpertPart part : plan.parts) {
    const SourceTensor& first = plan.ExpertSource(moe_layer, 0, part);
    targets[static_cast<size_t>(part)] = TargetOf(encoding, first);
    for (int expert = 1; expert < plan.description.experts_per_layer; ++expert) {
      const SourceTensor& source = plan.ExpertSource(moe_layer, expert, part);
      if (encoding || source.type == first.type) continue;
      return InvalidArgument(
          source.file->path(), ": tensor \"", source.name, "\" is ", source.type->name, " and \"", first.name, "\" ",
          first.type->name,
          ", expected one type for all experts of a layer to keep it; formats that can be made: ", FormatsThatAreMade());
    }
  }
  return targets;
}

absl::Status CheckNamedOnce(std::span<const std::string> names) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (std::find(names.begin(), names.begin() + i, names[i]) == names.begin() + i) continue;
    return InvalidArgument("--expert-formats names ", names[i], " twice; ", kKeep, " stands for the format that it finds");
  }
  return absl::OkStatus();
}

absl::Status LayOutPrecisions(const std::vector<EncodingOrKeep>& encodings, const PartShapes& shapes, PackPlan& plan) {
  for (const EncodingOrKeep& encoding : encodings) {
    ExpertPrecision& precision = plan.description.precisions.emplace_back();
    std::vector<PartTargets>& by_layer = plan.expert_targets.emplace_back();
    for (size_t layer = 0; layer < plan.description.moe_layers.size(); ++layer) {
      MOED_ASSIGN_OR_RETURN(const PartTargets targets, TargetsOfLayer(encoding, plan, layer));
      PartFormats formats;
      for (int p = 0; p < kExpertParts; ++p) formats[p] = targets[p].encoding.format;
      precision.layers.push_back(LayOutExpert(formats, shapes));
      by_layer.push_back(targets);
    }
  }
  std::vector<std::string> names;
  for (const ExpertPrecision& precision : plan.description.precisions) names.push_back(PrecisionName(precision));
  return CheckNamedOnce(names);
}

absl::Status PlanExperts(const Checkpoint& checkpoint, const std::vector<EncodingOrKeep>& encodings, TensorFinder& finder,
                         PackPlan& plan) {
  const ModelSpec& spec = plan.spec;
  const PartShapes shapes = ExpertShapes(spec);
  plan.parts = PartsOf(shapes);
  plan.description.moe_layers = spec.MoeLayers();
  plan.description.experts_per_layer = spec.experts;
  for (const LayerId layer : plan.description.moe_layers) {
    for (int expert = 0; expert < spec.experts; ++expert) {
      for (const ExpertPart part : plan.parts) {
        const std::string name = checkpoint.NameOfExpert(layer, expert, part);
        const auto [rows, cols] = shapes[static_cast<size_t>(part)];
        MOED_ASSIGN_OR_RETURN(const SourceTensor* source,
                              finder.Take(name, {static_cast<uint64_t>(rows), static_cast<uint64_t>(cols)}));
        plan.experts.push_back(source);
      }
    }
  }
  MOED_RETURN_IF_ERROR(LayOutPrecisions(encodings, shapes, plan));
  plan.description.trunk.push_back(ExpertNormsTensor(plan.description));
  plan.trunk.push_back(nullptr);
  plan.trunk_targets.emplace_back();
  plan.trunk_spellings.emplace_back();
  plan.trunk_head_factors.emplace_back();
  return absl::OkStatus();
}

absl::Status PlanTokenizer(const Checkpoint& checkpoint, PackPlan& plan) {
  absl::StatusOr<std::string> blob = checkpoint.CompiledTokenizer();
  if (!blob.ok()) return Annotate(blob.status(), checkpoint.path());
  absl::StatusOr<std::string> with_chat = WithChatSettings(*blob, checkpoint.chat());
  if (!with_chat.ok()) return Annotate(with_chat.status(), checkpoint.path());
  plan.description.tokenizer = *std::move(with_chat);
  absl::StatusOr<std::vector<std::string>> unknown = CheckChatTemplate(checkpoint.chat().chat_template);
  if (!unknown.ok()) return Annotate(unknown.status(), checkpoint.path());
  plan.unknown_in_template = *std::move(unknown);
  plan.chat_template_bytes = checkpoint.chat().chat_template.size();
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::FromBlob(plan.description.tokenizer);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), checkpoint.path());
  if ((*tokenizer)->vocabulary_size() > plan.spec.vocabulary) {
    return InvalidArgument(checkpoint.path(), ": the tokenizer has token ids up to ", (*tokenizer)->vocabulary_size() - 1,
                           ", expected less than vocab_size = ", plan.spec.vocabulary, " of ", checkpoint.described_by());
  }
  plan.tokenizer_bytes = (*tokenizer)->memory_bytes();
  return absl::OkStatus();
}

}  // namespace

std::vector<float> InverseFrequencies(double theta, int head_dim, const std::optional<YarnScaling>& yarn) {
  std::vector<float> frequencies = InverseFrequencies(theta, head_dim);
  if (!yarn) return frequencies;
  // The dimension whose frequency turns so many times.
  const auto dimension = [&](double turns) {
    return head_dim * std::log(yarn->original_positions / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double low = dimension(yarn->beta_fast), high = dimension(yarn->beta_slow);
  if (yarn->truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, head_dim - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double own = frequencies[i];
    frequencies[i] = static_cast<float>(own / yarn->factor * ramp + own * (1 - ramp));
  }
  return frequencies;
}

std::vector<float> InverseFrequencies(double theta, int head_dim, const FrequencyDivisors& divided) {
  std::vector<float> frequencies(head_dim / 2);
  for (int i = 0; i < head_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    // powf through double: the last bit does not depend on the math library.
    const auto power =
        static_cast<float>(std::pow(static_cast<double>(static_cast<float>(theta)), static_cast<double>(exponent)));
    frequencies[i] = 1.0f / (static_cast<float>(divided.divisors[i]) * power);
  }
  return frequencies;
}

std::vector<float> InverseFrequencies(double theta, int head_dim) {
  return InverseFrequencies(theta, head_dim, FrequencyDivisors{std::vector<double>(head_dim / 2, 1.0)});
}

std::vector<float> InverseFrequencies(const ModelSpec& spec) {
  std::vector<float> all;
  for (int i = 0; i < spec.rotation_count(); ++i) {
    const Rotation rotation = spec.rotation(i);
    const int dims = spec.RotaryDims(i);
    std::vector<float> frequencies = rotation.divided ? InverseFrequencies(rotation.theta, dims, *rotation.divided)
                                                      : InverseFrequencies(rotation.theta, dims, rotation.yarn);
    if (rotation.pairs > 0) std::fill(frequencies.begin() + rotation.pairs, frequencies.end(), 0.0f);
    all.insert(all.end(), frequencies.begin(), frequencies.end());
  }
  return all;
}

absl::StatusOr<EncodingOrKeep> ParseEncodingOrKeep(std::string_view text) {
  if (text == kKeep) return std::nullopt;
  const absl::StatusOr<Encoding> encoding = ParseEncoding(text);
  if (encoding.ok()) return *encoding;
  return InvalidArgument(encoding.status().message(), "; or ", kKeep);
}

EncodingOrKeep DefaultEncoding(const Checkpoint& checkpoint) {
  if (checkpoint.is_gguf() || checkpoint.is_quantised()) return std::nullopt;
  return Encoding{FormatId::kQ8};
}

absl::Status CheckNoFormatTwice(std::span<const EncodingOrKeep> experts) {
  std::vector<std::string> names;
  for (const EncodingOrKeep& encoding : experts) names.emplace_back(encoding ? FormatOf(encoding->format).name : kKeep);
  return CheckNamedOnce(names);
}

uint64_t PackPlan::piece_bytes() const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < layout.piece_count(); ++i) bytes += layout.PlainBytes(i);
  return bytes;
}

absl::StatusOr<PackPlan> MakePlan(const Checkpoint& checkpoint, const PackEncodings& encodings) {
  PackPlan plan;
  plan.spec = checkpoint.spec();
  plan.description.model_spec = SpecToJson(plan.spec);
  TensorFinder finder(checkpoint);
  MOED_RETURN_IF_ERROR(PlanTrunk(encodings.trunk, finder, checkpoint, plan));
  MOED_RETURN_IF_ERROR(PlanExperts(checkpoint, encodings.experts, finder, plan));
  LayOutTrunk(plan.description);
  MOED_RETURN_IF_ERROR(finder.CheckNothingLeft());
  MOED_RETURN_IF_ERROR(PlanTokenizer(checkpoint, plan));
  if (encodings.coded > 0) MarkCoded(plan.description);
  MOED_ASSIGN_OR_RETURN(plan.layout, FileLayout::Plan(plan.description, plan.description.tokenizer.size()));
  const auto name = [](const EncodingOrKeep& encoding) { return encoding ? EncodingName(*encoding) : std::string(kKeep); };
  const std::string names = StrCat(name(encodings.trunk), ";", JoinNames(encodings.experts, name), ";", encodings.coded);
  plan.identity = Checksum(StrCat(Version(), "\n", StoreVersion(plan.description), "\n", names, "\n", checkpoint.fingerprint()));
  return plan;
}

}  // namespace moed
