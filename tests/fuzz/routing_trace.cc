// Recorded routing: shape, index, experts and probabilities, in the fuzzer's bytes with lines of "--" between them. Every number
// of what is accepted lies inside its shape.
#include <array>

#include "bench/replay/routing_trace_reader.h"
#include "tests/fuzz/foreign_bytes.h"

using namespace moed;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static constexpr std::string_view kSeparator = "\n--\n";
  static constexpr std::array kFiles = {kTraceShape, kTraceIndex, kTraceExperts8, kTraceProbabilities};
  static const fuzz::Folder folder;
  std::string_view rest = fuzz::Text(data, size);
  for (const std::string_view file : kFiles) {
    const size_t end = std::min(rest.find(kSeparator), rest.size());
    folder.Write(file, rest.substr(0, end));
    rest.remove_prefix(std::min(end + kSeparator.size(), rest.size()));
  }
  TokenTexts texts;
  const auto trace = ReadRoutingTrace(folder.path(), std::nullopt, texts);
  if (!trace.ok()) return 0;
  for (const uint16_t expert : trace->experts) MOED_CHECK(expert < trace->shape.experts);
  for (const TraceSequence& sequence : trace->sequences) {
    MOED_CHECK(sequence.first <= trace->tokens() && sequence.tokens <= trace->tokens() - sequence.first);
  }
  return 0;
}
