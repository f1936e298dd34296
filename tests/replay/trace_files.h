// Traces that tests write: two layers, top-2 of 4 experts.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lzma.h>

#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "bench/replay/routing_trace_reader.h"
#include "tests/store/small_store.h"

namespace moed {

inline RoutingShape TinyShape() { return {.layers = {LayerId(0), LayerId(1)}, .top_k = 2, .experts = 4, .expert_bytes = 4096}; }

// Three tokens of two sequences.
struct TraceFiles {
  std::string experts = std::string(
      "\0\1\2\3"
      "\1\0\3\2"
      "\0\2\1\3",
      12);
  std::string probabilities = std::string(12, '\x80');
  std::string index = R"({"first": 0, "n": 2, "category": "a", "tokens": ["x", "y"]})"
                      "\n"
                      R"({"first": 2, "n": 1, "category": "b", "tokens": ["x"]})"
                      "\n";

  void Write(const MemoryFolder& folder) const {
    const auto write = [&](std::string_view name, const std::string& contents) {
      std::ofstream(folder / name, std::ios::binary) << contents;
    };
    write(kTraceExperts8, experts);
    write(kTraceProbabilities, probabilities);
    write(kTraceIndex, index);
  }
};

inline absl::StatusOr<RoutingTrace> ReadTiny(const MemoryFolder& folder) {
  TokenTexts texts;
  // The path of the folder itself.
  std::string path = folder / "";
  path.pop_back();
  return ReadRoutingTrace(path, TinyShape(), texts);
}

inline std::string Message(const absl::Status& status) { return {status.message().data(), status.message().size()}; }

// Layers of one trace from the experts of each token, layer by layer; probabilities fall with the rank.
inline RoutingTrace MakeTrace(RoutingShape shape, const std::vector<std::vector<uint16_t>>& tokens) {
  RoutingTrace trace{.shape = std::move(shape)};
  trace.sequences = {{0, tokens.size(), ""}};
  for (size_t i = 0; i < tokens.size(); ++i) {
    trace.token_ids.push_back(TokenId(static_cast<int32_t>(i % 7)));
    trace.experts.insert(trace.experts.end(), tokens[i].begin(), tokens[i].end());
  }
  trace.probabilities.assign(trace.experts.size(), 100);
  return trace;
}

}  // namespace moed
