// Reads a GGUF's metadata into a ModelSpec so that nothing in it is overlooked: every key of the architecture is either read,
// known not to change what the model computes, or an error. The first error sticks; values read after it are defaults.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/spec.h"
#include "tools/pack/gguf/split.h"

namespace moed {

// Keys are given without the architecture's name: "block_count" reads "qwen3moe.block_count".
class GgufSpecReader {
 public:
  // The model must outlive it.
  explicit GgufSpecReader(const GgufModel& model);

  // A key that must be there, from low to high inclusive. An array, which says it layer by layer, must say the same of all.
  int Int(std::string_view key, int64_t low, int64_t high);
  double Number(std::string_view key, double low, double high);
  // `otherwise` where the key is absent: the meaning that llama.cpp gives to its absence.
  int IntOr(std::string_view key, int otherwise, int64_t low, int64_t high);
  // One number a layer, from an array, or the same for all.
  std::vector<int> Ints(std::string_view key, size_t layers, int64_t low, int64_t high);
  double NumberOr(std::string_view key, double otherwise, double low, double high);
  bool BoolOr(std::string_view key, bool otherwise);
  // One flag a layer, from an array, or from a number n: false for every n-th layer; `period` is that number where the key is
  // absent.
  std::vector<bool> LayersOr(std::string_view key, int layers, int period);
  std::string StringOr(std::string_view key, std::string_view otherwise);
  // An error unless the key is absent or has one of these values.
  void Only(std::string_view key, std::initializer_list<double> allowed);
  void OnlyText(std::string_view key, std::initializer_list<std::string_view> allowed);

  bool Has(std::string_view key) const;
  const GgufTensor* Tensor(std::string_view name) const { return model_.Find(name); }
  // The numbers of a vector of float32. INVALID_ARGUMENT where it is missing or another one.
  absl::StatusOr<std::vector<float>> Floats(std::string_view tensor, size_t count) const;
  const GgufModel& model() const { return model_; }
  void Fail(absl::Status status);
  // BOS and EOS from the tokenizer's keys, then everything checked: the first error, or one for a key that nobody read.
  absl::StatusOr<ModelSpec> Finish(ModelSpec spec);

 private:
  std::string Full(std::string_view key);  // marks it as read
  template <class T>
  T Value(absl::StatusOr<T> value, T otherwise);
  void ReadEndTokens(ModelSpec& spec);

  const GgufModel& model_;
  std::string prefix_;  // "qwen3moe."
  std::set<std::string, std::less<>> read_;
  absl::Status status_;
};

// Keys that an architecture reads itself; of the others every value is refused that the decoders do not have.
inline constexpr std::string_view kGgufRmsEps = "attention.layer_norm_rms_epsilon";
struct GgufOwnKeys {
  std::string_view norm_eps = kGgufRmsEps;
  bool window = false;
  bool rope_scaling = false;    // others may have YaRN where all layers turn alike and attention is not latent
  bool partial_rotary = false;  // fewer dimensions may be rotated than a head has; into rotary_dims
  bool gating = false;          // the router's
  bool weights_scale = false;   // of the experts' outputs; into router_scale
  bool latent = false;          // multi-head latent attention
  bool heads = false;           // kv_heads and head_dim, of kinds of layers
  bool unrotated = false;       // heads do not turn, whatever the file says of it
  bool query_heads = false;     // heads, of kinds of layers
  bool recurrent = false;       // layers may have no heads of keys and values: they are the recurrent ones
};

// What all decoders share: sizes of attention and embeddings, norms, RoPE, which layers have experts and how many, and refusals
// of what no family implements. Layers that predict further tokens are not counted. `family` is the spec's.
ModelSpec ReadGgufDecoder(GgufSpecReader& reader, std::string_view family, const GgufOwnKeys& own = {});
// expert_feed_forward_length, or feed_forward_length where it is absent, which must be the same where both are there.
void ReadOneFfnWidth(GgufSpecReader& reader, ModelSpec& spec);
// dense_ffn from feed_forward_length where a layer has no experts; expert_ffn from expert_feed_forward_length. Which layers they
// are is said by the tensors.
void ReadFfnWidths(GgufSpecReader& reader, ModelSpec& spec);
// rope.scaling.type "yarn", whose attention_factor is what the factor gives; nothing for none. GGUF has no key for `truncate`.
std::optional<YarnScaling> ReadGgufYarn(GgufSpecReader& reader, bool truncate);
// What divides the frequencies of Llama 3.1's kind, where there is such a tensor.
inline constexpr std::string_view kGgufRopeFactors = "rope_freqs.weight";
void ReadGgufRopeFactors(GgufSpecReader& reader, ModelSpec& spec);
// Groups of experts, of which the best are kept.
void ReadGroups(GgufSpecReader& reader, ModelSpec& spec);
// Sigmoid scores with a correction for the choice.
void ReadCorrectedSigmoid(GgufSpecReader& reader, ModelSpec& spec);
// Both, as DeepSeek-V3 has them: a group ranks by its two largest keys.
void ReadGroupedSigmoid(GgufSpecReader& reader, ModelSpec& spec);

}  // namespace moed
