// Reads one config.json so that nothing in it is overlooked: every key is either read, known not to change what the model
// computes, or an error. The first error sticks; values read after it are defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/spec.h"
#include "nlohmann/json.hpp"

namespace moed {

// The text of `name`, in which Python writes infinity as a word that JSON does not have: as the object that transformers 5
// writes.
absl::StatusOr<nlohmann::json> ParseConfigJson(std::string_view name, std::string_view text);

class ConfigReader {
 public:
  // `name` ("config.json") appears in every message.
  static absl::StatusOr<ConfigReader> Parse(std::string name, std::string_view text);

  // A key that must be there, between low and high inclusive.
  int Int(std::string_view key, int64_t low, int64_t high);
  double Number(std::string_view key, double low, double high);
  double NumberOr(std::string_view key, double otherwise, double low, double high);
  // `otherwise` where the key is absent or null: the meaning transformers gives to its absence.
  int IntOr(std::string_view key, int otherwise, int64_t low, int64_t high);
  bool BoolOr(std::string_view key, bool otherwise);  // null is an error where absence means true
  // A flag, or a whole number in its place: whether it is not 0.
  bool TruthOr(std::string_view key, bool otherwise);
  // One number, or a list of one number again and again.
  int SameInt(std::string_view key, int64_t low, int64_t high);
  // These keys have been looked at: they change nothing.
  void Known(std::initializer_list<std::string_view> keys) { read_.insert(keys.begin(), keys.end()); }
  std::vector<int> IntsOr(std::string_view key, int64_t low, int64_t high);  // absent, null: empty; one number: a list of one
  // As many of these strings as `count` says; as in `otherwise` where the key is absent.
  std::vector<std::string> StringsOr(std::string_view key, size_t count, std::span<const std::string_view> allowed,
                                     std::vector<std::string> otherwise);
  // The same of any number of strings; the key must be there.
  std::vector<std::string> Strings(std::string_view key, std::span<const std::string_view> allowed);
  std::string String(std::string_view key);
  // An object that must be there, to be read by itself.
  absl::StatusOr<ConfigReader> Object(std::string_view key);

  // Whether the key is there and has this value.
  bool Is(std::string_view key, const nlohmann::json& value);
  // An error unless the key is absent or has one of these values. Numbers compare by value.
  void Only(std::string_view key, std::initializer_list<nlohmann::json> allowed);
  // Two spellings of one key: the one that is there; an error when both are and differ.
  std::string_view Spelling(std::string_view one, std::string_view other);
  // LongRoPE's divisors for contexts of up to so many positions, and for longer ones.
  struct LongRope {
    int original_positions = 0;
    FrequencyDivisors for_short, for_long;
    bool operator==(const LongRope&) const = default;
  };
  // "linear": every frequency is divided by the factor. "llama3" (Llama 3.1): those that turn fewer than low_freq_factor times in
  // so many positions are, those that turn more than high_freq_factor times stay, those between are a mixture.
  struct ScaledRope {
    double factor = 1;
    double low_freq_factor = 1, high_freq_factor = 4;
    double original_positions = 0;  // 0: "linear"
    bool operator==(const ScaledRope&) const = default;
    FrequencyDivisors Divisors(double theta, int dims) const;
  };
  // theta from rope_theta or rope_parameters, scaling from there or rope_scaling; a kind that is none of these is an error.
  struct Rope {
    double theta = 1;
    std::optional<YarnScaling> yarn;
    std::optional<LongRope> long_rope;
    std::optional<ScaledRope> scaled;
    std::optional<double> partial;      // of head_dim
    double ntk_alpha = 1;               // theta is to be multiplied by its power of head_dim / (head_dim - 2)
    double all_dims_magnitude = 1;      // YaRN's for mscale_all_dim: latent attention's queries and keys are multiplied by it
    std::optional<double> temperature;  // of queries, whose positions are YaRN's original ones
  };
  // What else than a whole head and "default" or "yarn" scaling is allowed.
  struct RopeKinds {
    bool long_rope = false;
    bool long_rope_magnitudes = false;  // its attention factors are short_mscale and long_mscale
    bool scaled = false;                // "linear" and "llama3"
    bool partial = false;               // partial_rotary_factor below 1
    bool ntk_alpha = false;             // "dynamic" with a fixed alpha
    std::optional<double> theta;        // where no key says it
    bool mrope = false;                 // mrope_section and how its sections lie: by place in a picture, which are one in a text
    bool proportional = false;
    bool temperature = false;  // YaRN has llama_4_scaling_beta
  };
  Rope ReadRope(const RopeKinds& kinds);
  // rope_parameters with an object for each of some types of layers: "default" or "yarn", whole heads. Absent types have none,
  // and all of them where the key is absent. With `proportional` heads of that many dimensions may be "proportional" as well:
  // partial_rotary_factor of their pairs turn, the first, by the frequencies of whole heads.
  std::vector<std::optional<Rotation>> ReadRotations(std::span<const std::string_view> layer_types,
                                                     std::span<const int> proportional = {});
  // The same of heads of so many dimensions, of which a part may turn: the object's partial_rotary_factor, or the model's where
  // it has none. Every rotation says its dimensions. Beside the objects, original_max_position_embeddings stands for theirs.
  std::vector<std::optional<Rotation>> ReadPartRotations(std::span<const std::string_view> layer_types, int head_dim);

  // quantization_config: absent, or of this method.
  void ReadQuantization(std::string_view method);

  bool Has(std::string_view key) const;     // present and not null
  bool IsNull(std::string_view key) const;  // present, where null is not what absence means
  void Fail(absl::Status status);
  const absl::Status& status() const { return status_; }
  // The first error, or one for a key nobody asked for.
  absl::Status Finish() const;

 private:
  ConfigReader(std::string name, nlohmann::json root) : name_(std::move(name)), root_(std::move(root)) {}
  const nlohmann::json* Find(std::string_view key);  // marks it as read; null when absent or null
  const nlohmann::json* Required(std::string_view key);
  int CheckedInt(std::string_view key, const nlohmann::json& value, int64_t low, int64_t high);
  // Of a key whose absence means something else.
  void RefuseNull(std::string_view key, std::string_view allowed);
  void FailValue(std::string_view key, const nlohmann::json& value, std::string_view allowed);
  // What rope_scaling or rope_parameters says.
  struct RopeObject {
    std::optional<double> theta;
    std::optional<YarnScaling> yarn;
    std::optional<LongRope> long_rope;
    std::optional<ScaledRope> scaled;
    std::optional<double> partial;
    std::optional<double> ntk_alpha;
    bool proportional = false;
    double all_dims_magnitude = 1;
    std::optional<double> temperature;
    std::optional<std::string> kind;  // none: there is no such object
  };
  RopeObject ReadRopeObject(std::string_view key, const nlohmann::json* object, const RopeKinds& kinds);
  void RefuseWithoutTruncate(std::string_view path, const RopeObject& rope);
  double ReadNtkAlpha(std::string_view key, const nlohmann::json& object);
  YarnScaling ReadYarn(std::string_view key, const nlohmann::json& object, const RopeKinds& kinds);
  LongRope ReadLongRope(std::string_view key, const nlohmann::json& object, const RopeKinds& kinds);
  ScaledRope ReadScaledRope(std::string_view key, const nlohmann::json& object, bool llama3, const RopeKinds& kinds);
  std::vector<double> NumbersIn(std::string_view key, const nlohmann::json& object, std::string_view name);
  // An error for another member of the object.
  void OnlyNames(std::string_view key, const nlohmann::json& object, std::span<const std::string_view> known);
  std::optional<double> NumberIn(std::string_view key, const nlohmann::json& object, std::string_view name);

  std::string name_;
  nlohmann::json root_;
  std::set<std::string, std::less<>> read_;
  absl::Status status_;
};

}  // namespace moed
