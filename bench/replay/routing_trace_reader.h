// Recorded routing in memory; docs/routing-traces.md describes the files.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/expert/routing_trace.h"

namespace moed {

struct TraceSequence {
  size_t first = 0;  // token
  size_t tokens = 0;
  std::string category;  // may be empty
};

// One choice a byte or two, probabilities in 1/255. Token by token, layer by layer, highest probability first.
struct RoutingTrace {
  RoutingShape shape;
  std::vector<TraceSequence> sequences;
  std::vector<TokenId> token_ids;      // (tokens)
  std::vector<uint16_t> experts;       // (tokens, layers, top_k)
  std::vector<uint8_t> probabilities;  // likewise

  size_t tokens() const { return token_ids.size(); }
  size_t At(size_t token, int layer_position) const {
    return (token * shape.layers.size() + static_cast<size_t>(layer_position)) * static_cast<size_t>(shape.top_k);
  }
  size_t replayed_tokens() const;
};

// Where a trace names its tokens by text: the same text is the same number in every trace read with one dictionary.
using TokenTexts = absl::flat_hash_map<std::string, int32_t>;

// `shape` where given, else DIR/shape.json, else that of gpt-oss-20b (24 layers, top-4 of 32).
// NOT_FOUND, DATA_LOSS or INVALID_ARGUMENT naming file, offset or line, what was found and what is allowed.
absl::StatusOr<RoutingTrace> ReadRoutingTrace(const std::string& directory, const std::optional<RoutingShape>& shape,
                                              TokenTexts& texts);

}  // namespace moed
