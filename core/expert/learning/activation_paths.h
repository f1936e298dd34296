// Which experts follow which: what tokens' ways through the layers were, counted (EdgeMoE, arXiv 2308.14352, section III-C).
//
// The paper's key is the sets of experts of the two MoE layers before, its value the probability of each expert of the next one.
// Where several of many experts are chosen, a whole key is hardly ever seen twice. Where it was never seen, the next of these
// that was seen answers (ours): pairs of experts, one from each of the two layers; single experts of the layer before; the
// frequency of the layer's experts. Of several pairs or experts the counts are added up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/expert/learning/path_table.h"
#include "core/expert/routing.h"

namespace moed {

// What an estimate comes from.
enum class PathSource : uint8_t { kPath = 0, kPairs = 1, kExperts = 2, kFrequency = 3 };
inline constexpr int kPathSources = 4;
inline constexpr std::array<const char*, kPathSources> kPathSourceNames = {"whole keys", "pairs", "single experts", "frequency"};

using ExpertSet = absl::InlinedVector<int32_t, 8>;  // ascending

// Of one token, in the two MoE layers before the one in question. Empty: not known.
struct PathKey {
  ExpertSet two_before;
  ExpertSet before;
};

// Bounded whatever the text. Not synchronised.
class ActivationPaths {
 public:
  static constexpr int kReach = 2;  // layers of a whole key

  // For a model of `layers` MoE layers; with `reach` 1, nothing but single experts and frequency is kept.
  ActivationPaths(int layers, int experts, int reach, size_t max_bytes);

  // A token used `chosen` in MoE layer `position` (from 0), after `key`.
  void Add(int position, const PathKey& key, std::span<const int32_t> chosen);
  // Probabilities (experts) in MoE layer `position` after `key`; all 0 in a layer that was never seen.
  PathSource Estimate(int position, const PathKey& key, std::span<float> probabilities) const;

  // (experts): tokens that used each one of MoE layer `position`.
  std::span<const uint32_t> Frequency(int position) const {
    return std::span(frequency_).subspan(static_cast<size_t>(position) * experts_, static_cast<size_t>(experts_));
  }

  int layers() const { return layers_; }
  int experts() const { return experts_; }
  size_t memory_bytes() const {
    return paths_.memory_bytes() + parts_.memory_bytes() + (visits_.size() + frequency_.size()) * sizeof(uint32_t);
  }

  // The same where max_bytes is 0; it grows by no more than those.
  static size_t LeastBytes(int layers, int experts) {
    return 2 * PathTable::LeastBytes(experts) +
           static_cast<size_t>(layers) * (static_cast<size_t>(experts) + 1) * sizeof(uint32_t);
  }

  // The whole file or an error.
  absl::Status Write(const std::string& path, uint64_t model_hash) const;
  // FAILED_PRECONDITION for one of another model or version; DATA_LOSS for what is no such file, is truncated or contradicts
  // itself.
  static absl::StatusOr<std::unique_ptr<ActivationPaths>> Read(const std::string& path, uint64_t model_hash, int layers,
                                                               int experts);

 private:
  struct Header;
  ActivationPaths(int layers, int experts, int reach, size_t path_bytes, size_t part_bytes);
  absl::Status Check() const;
  template <class Self, class Visit>
  static void ForContents(Self& self, Visit&& visit);

  int layers_;
  int experts_;
  int reach_;
  PathTable paths_;                  // by whole keys
  PathTable parts_;                  // by pairs and single experts
  std::vector<uint32_t> visits_;     // (layers): tokens
  std::vector<uint32_t> frequency_;  // (layers, experts)
};

// The keys of the tokens of the step that is under way. Not synchronised.
class TokenPaths {
 public:
  struct Row {
    SequenceId sequence;
    TokenId token;
    Phase phase = Phase::kDecode;
    PathKey next;  // for the layer after the one seen last
  };

  // The MoE layer at `position` was routed. `visit` hears of each token its key for that layer and what was chosen.
  void Advance(int position, const LayerRouting& routing,
               absl::FunctionRef<void(const TokenRouting&, const PathKey&, const ExpertSet&)> visit);
  std::span<const Row> rows() const { return rows_; }  // one for each token, in order
  int position() const { return position_; }           // the layer seen last

 private:
  int position_ = -1;
  std::vector<Row> rows_;
  std::vector<Row> earlier_;  // scratch
};

}  // namespace moed
