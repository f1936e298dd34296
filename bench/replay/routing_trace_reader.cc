#include "bench/replay/routing_trace_reader.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "absl/container/flat_hash_set.h"
#include "bench/replay/whole_file.h"
#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/store/layout.h"
#include "nlohmann/json.hpp"

namespace moed {
namespace {

using Json = nlohmann::json;

constexpr int kGptOssLayers = 24;
constexpr int kGptOssTopK = 4;
constexpr int kGptOssExperts = 32;
constexpr uint64_t kGptOssExpertBytes = 3ull * 2880 * 2880 * 17 / 32;  // MXFP4: 4.25 bits a weight
constexpr std::string_view kOtherShapes = "; another shape is told by shape.json or --layers, --top-k and --experts";

RoutingShape GptOssShape() {
  RoutingShape shape{.top_k = kGptOssTopK, .experts = kGptOssExperts, .expert_bytes = kGptOssExpertBytes};
  for (int layer = 0; layer < kGptOssLayers; ++layer) shape.layers.push_back(LayerId(layer));
  return shape;
}

std::string ShapeText(const RoutingShape& shape) {
  return StrCat(shape.layers.size(), " layers, top-", shape.top_k, " of ", shape.experts, " experts");
}

absl::Status CheckShape(const std::string& from, const RoutingShape& shape) {
  if (shape.layers.empty() || shape.layers.size() > kMaxLayers) {
    return InvalidArgument(from, ": ", shape.layers.size(), " layers: allowed are 1 to ", kMaxLayers);
  }
  if (shape.experts < 1 || shape.experts > kMaxExpertsPerLayer) {
    return InvalidArgument(from, ": ", shape.experts, " experts: allowed are 1 to ", kMaxExpertsPerLayer);
  }
  if (shape.top_k < 1 || shape.top_k > shape.experts) {
    return InvalidArgument(from, ": top-", shape.top_k, ": allowed are 1 to ", shape.experts, ", the number of experts");
  }
  for (size_t i = 0; i < shape.layers.size(); ++i) {
    const int32_t layer = shape.layers[i].value();
    if (layer < 0 || layer >= kMaxLayers || (i > 0 && shape.layers[i - 1] >= shape.layers[i])) {
      return InvalidArgument(from, ": layer ", layer, ": layers are 0 to ", kMaxLayers - 1, ", ascending");
    }
  }
  return absl::OkStatus();
}

// Not negative, and what the numbers of this program hold.
absl::StatusOr<int32_t> Number(std::string_view name, const Json& json) {
  MOED_ASSIGN_OR_RETURN(const int64_t number, WholeNumber(name, json, 0, std::numeric_limits<int32_t>::max()));
  return static_cast<int32_t>(number);
}

absl::StatusOr<std::vector<int32_t>> Numbers(std::string_view name, const Json& json) {
  std::vector<int32_t> numbers;
  for (const Json& element : json.get_ref<const Json::array_t&>()) {
    MOED_ASSIGN_OR_RETURN(const int32_t number, Number(name, element));
    numbers.push_back(number);
  }
  return numbers;
}

absl::StatusOr<RoutingShape> ParseShape(const std::string& text) {
  RoutingShape shape;
  try {
    const Json json = Json::parse(text);
    MOED_ASSIGN_OR_RETURN(const std::vector<int32_t> layers, Numbers("a layer", json.at("layers")));
    for (const int32_t layer : layers) shape.layers.push_back(LayerId(layer));
    MOED_ASSIGN_OR_RETURN(shape.top_k, Number("top_k", json.at("top_k")));
    MOED_ASSIGN_OR_RETURN(shape.experts, Number("experts", json.at("experts")));
    if (json.contains("expert_bytes")) {
      MOED_ASSIGN_OR_RETURN(const int64_t bytes, WholeNumber("expert_bytes", json.at("expert_bytes"), 0));
      shape.expert_bytes = static_cast<uint64_t>(bytes);
    }
  } catch (const Json::exception& error) {
    return InvalidArgument(error.what(), R"(; expected {"layers": [0, ...], "top_k": N, "experts": N})");
  }
  return shape;
}

absl::StatusOr<RoutingShape> ShapeOf(const std::string& directory, const std::optional<RoutingShape>& given) {
  const std::string path = StrCat(directory, "/", kTraceShape);
  RoutingShape shape = GptOssShape();
  std::string from = "the shape of gpt-oss-20b";
  if (given) {
    shape = *given;
    from = "the given shape";
  } else if (std::error_code ignored; std::filesystem::exists(path, ignored) || std::filesystem::exists(path + ".xz", ignored)) {
    MOED_ASSIGN_OR_RETURN(const WholeFile file, ReadPlainOrXz(path));
    absl::StatusOr<RoutingShape> parsed = ParseShape(file.contents);
    if (!parsed.ok()) return Annotate(parsed.status(), file.path);
    shape = *std::move(parsed);
    from = file.path;
  }
  MOED_RETURN_IF_ERROR(CheckShape(from, shape));
  return shape;
}

absl::Status ReadExperts(const WholeFile& file, RoutingTrace& trace) {
  const size_t width = trace.shape.wide() ? 2 : 1;
  const size_t token_bytes = trace.shape.layers.size() * static_cast<size_t>(trace.shape.top_k) * width;
  if (file.contents.empty() || file.contents.size() % token_bytes != 0) {
    return InvalidArgument(file.path, ": ", file.contents.size(), " bytes are truncated or of another shape: a token has ",
                           token_bytes, " bytes (", ShapeText(trace.shape), "), and the file whole tokens, one at least",
                           kOtherShapes);
  }
  const auto* bytes = reinterpret_cast<const uint8_t*>(file.contents.data());
  trace.experts.resize(file.contents.size() / width);
  for (size_t i = 0; i < trace.experts.size(); ++i) {
    const int expert = width == 1 ? bytes[i] : bytes[2 * i] | bytes[2 * i + 1] << 8;
    if (expert >= trace.shape.experts) {
      return InvalidArgument(file.path, ": offset ", i * width, ": expert ", expert, ": allowed are 0 to ",
                             trace.shape.experts - 1, kOtherShapes);
    }
    trace.experts[i] = static_cast<uint16_t>(expert);
  }
  const auto k = static_cast<size_t>(trace.shape.top_k);
  for (size_t i = 0; i < trace.experts.size(); i += k) {
    for (size_t a = 1; a < k; ++a) {
      const auto begin = trace.experts.begin() + static_cast<std::ptrdiff_t>(i);
      const auto end = begin + static_cast<std::ptrdiff_t>(a);
      if (std::find(begin, end, *end) == end) continue;
      return InvalidArgument(file.path, ": offset ", (i + a) * width, ": expert ", *end,
                             " twice in one layer of one token: the top-", k, " of a layer are different experts", kOtherShapes);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadProbabilities(const WholeFile& file, RoutingTrace& trace) {
  if (file.contents.size() != trace.experts.size()) {
    return InvalidArgument(file.path, ": ", file.contents.size(), " bytes: ", trace.experts.size(),
                           " are needed, one for each chosen expert");
  }
  trace.probabilities.assign(file.contents.begin(), file.contents.end());
  return absl::OkStatus();
}

// Numbers of the sequence's tokens, from their ids or their texts.
absl::StatusOr<std::vector<int32_t>> TokensOf(const Json& line, TokenTexts& texts) {
  if (line.contains("token_ids")) return Numbers("a token id", line.at("token_ids"));
  if (!line.contains("tokens")) return InvalidArgument("neither \"tokens\" (texts) nor \"token_ids\"");
  std::vector<int32_t> ids;
  for (const Json& text : line.at("tokens").get_ref<const Json::array_t&>()) {
    ids.push_back(texts.try_emplace(text.get<std::string>(), static_cast<int32_t>(texts.size())).first->second);
  }
  return ids;
}

absl::Status ReadSequence(const Json& line, RoutingTrace& trace, TokenTexts& texts) {
  MOED_ASSIGN_OR_RETURN(const int64_t first, WholeNumber("first", line.at("first"), 0));
  MOED_ASSIGN_OR_RETURN(const int64_t count, WholeNumber("n", line.at("n"), 1));
  const auto have = static_cast<int64_t>(trace.token_ids.size());
  if (first > have || count > have - first) {
    const uint64_t last = static_cast<uint64_t>(first) + static_cast<uint64_t>(count) - 1;
    return InvalidArgument("tokens ", first, " to ", last, ": the trace has tokens 0 to ", have - 1,
                           " (truncated, or of another shape", kOtherShapes, ")");
  }
  MOED_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, TokensOf(line, texts));
  if (ids.size() != static_cast<size_t>(count)) return InvalidArgument(ids.size(), " tokens are named, n says ", count);
  for (size_t i = 0; i < ids.size(); ++i) trace.token_ids[static_cast<size_t>(first) + i] = TokenId(ids[i]);
  trace.sequences.push_back({static_cast<size_t>(first), static_cast<size_t>(count), line.value("category", std::string())});
  return absl::OkStatus();
}

absl::Status ReadIndex(const WholeFile& file, RoutingTrace& trace, TokenTexts& texts) {
  size_t begin = 0;
  for (int number = 1; begin < file.contents.size(); ++number) {
    const size_t end = std::min(file.contents.find('\n', begin), file.contents.size());
    const std::string_view line = std::string_view(file.contents).substr(begin, end - begin);
    begin = end + 1;
    if (line.empty()) continue;
    absl::Status status;
    try {
      status = ReadSequence(Json::parse(line), trace, texts);
    } catch (const Json::exception& error) {
      status = InvalidArgument(error.what());
    }
    if (!status.ok()) return Annotate(status, StrCat(file.path, ": line ", number));
  }
  if (trace.sequences.empty()) return InvalidArgument(file.path, ": no sequence; one JSON object a line is expected");
  return absl::OkStatus();
}

}  // namespace

size_t RoutingTrace::replayed_tokens() const {
  size_t sum = 0;
  for (const TraceSequence& sequence : sequences) sum += sequence.tokens;
  return sum;
}

absl::StatusOr<RoutingTrace> ReadRoutingTrace(const std::string& directory, const std::optional<RoutingShape>& shape,
                                              TokenTexts& texts) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(directory, ignored)) return NotFound(directory, ": no such directory");
  RoutingTrace trace;
  MOED_ASSIGN_OR_RETURN(trace.shape, ShapeOf(directory, shape));
  const std::string_view experts_name = trace.shape.wide() ? kTraceExperts16 : kTraceExperts8;
  MOED_ASSIGN_OR_RETURN(const WholeFile experts, ReadPlainOrXz(StrCat(directory, "/", experts_name)));
  MOED_RETURN_IF_ERROR(ReadExperts(experts, trace));
  MOED_ASSIGN_OR_RETURN(const WholeFile probabilities, ReadPlainOrXz(StrCat(directory, "/", kTraceProbabilities)));
  MOED_RETURN_IF_ERROR(ReadProbabilities(probabilities, trace));
  trace.token_ids.assign(trace.experts.size() / (trace.shape.layers.size() * static_cast<size_t>(trace.shape.top_k)),
                         TokenId(-1));
  MOED_ASSIGN_OR_RETURN(const WholeFile index, ReadPlainOrXz(StrCat(directory, "/", kTraceIndex)));
  MOED_RETURN_IF_ERROR(ReadIndex(index, trace, texts));
  return trace;
}

}  // namespace moed
