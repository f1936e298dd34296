// Recorded routing: the files of a trace and who writes them. docs/routing-traces.md describes the format.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/expert/expert_index.h"
#include "core/expert/routing.h"

namespace moed {

inline constexpr std::string_view kTraceExperts8 = "experts.u8";
inline constexpr std::string_view kTraceExperts16 = "experts.u16";  // little endian; where an id does not fit a byte
inline constexpr std::string_view kTraceProbabilities = "probs.u8";
inline constexpr std::string_view kTraceIndex = "index.jsonl";
inline constexpr std::string_view kTraceShape = "shape.json";

struct RoutingShape {
  std::vector<LayerId> layers;  // with experts, ascending
  int top_k = 0;
  int experts = 0;
  uint64_t expert_bytes = 0;  // 0: not known
  bool wide() const { return experts > 256; }
  bool SameExperts(const RoutingShape& other) const {
    return layers == other.layers && top_k == other.top_k && experts == other.experts;
  }
};

// DIRECTORY/2, DIRECTORY/3 and so on: the first that holds no trace. For who records again what is recorded in DIRECTORY.
std::string NextTraceFolder(const std::string& directory);

// Writes decoded tokens, a sequence when it ends or pauses; long ones in pieces, so that memory stays bounded. A token that was
// routed to fewer than top_k experts in some layer (masked) is left out. Not synchronised.
class RoutingRecorder {
 public:
  // Makes the directory where it does not exist. ALREADY_EXISTS for one that holds a trace.
  // `budget`: the process's, of which it takes a small part. `failed`: told once, by whoever records; may be empty.
  static absl::StatusOr<std::unique_ptr<RoutingRecorder>> Create(const std::string& directory, const RoutingShape& shape,
                                                                 uint64_t budget,
                                                                 std::function<void(const absl::Status&)> failed = nullptr);

  void OnRouted(const LayerRouting& routing);
  void OnSequenceEnd(SequenceId sequence);  // or pause: what comes later is another piece
  // Writes what is left. DATA_LOSS where a write failed; nothing was recorded from there on, and what was is a whole trace.
  absl::Status Finish();

  // Of so many sequences between their beginnings and their ends.
  static uint64_t MemoryBytes(uint64_t budget, uint64_t sequences) { return (sequences + 1) * PieceBytes(budget); }

 private:
  static size_t PieceBytes(uint64_t budget) { return std::clamp<uint64_t>(budget / 1024, 16 << 10, 1 << 20); }

  struct Sequence {
    std::vector<TokenId> tokens;
    std::vector<uint16_t> experts;       // (tokens, layers, top_k), the last token perhaps in part
    std::vector<uint8_t> probabilities;  // likewise
    bool whole = false;                  // no layer of the current token lacks an expert
  };

  RoutingRecorder(std::string directory, const RoutingShape& shape, size_t piece_bytes);
  void Record(int position, const TokenRouting& token);
  void Write(Sequence& sequence);
  void Append(std::string_view experts, std::string_view probabilities, std::string_view line);
  void CutToWhole();

  const std::string directory_;
  const RoutingShape shape_;
  std::function<void(const absl::Status&)> told_failure_;
  const ExpertIndex index_;
  const size_t token_values_;  // (layers, top_k)
  const size_t piece_tokens_;  // of a sequence before it is written
  std::ofstream experts_, probabilities_, sequences_index_;
  absl::flat_hash_map<SequenceId, Sequence> sequences_;
  uint64_t tokens_written_ = 0, index_bytes_ = 0;
  absl::Status failure_;  // of the first write that failed
};

}  // namespace moed
