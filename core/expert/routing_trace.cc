#include "core/expert/routing_trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "core/base/status.h"
#include "nlohmann/json.hpp"

namespace moed {
namespace {

// Of a token's line in the index while it is made, too.
constexpr size_t kTokenBytes = 64, kValueBytes = sizeof(uint16_t) + sizeof(uint8_t);

std::string ShapeJson(const RoutingShape& shape) {
  nlohmann::ordered_json json;
  for (const LayerId layer : shape.layers) json["layers"].push_back(layer.value());
  json["top_k"] = shape.top_k;
  json["experts"] = shape.experts;
  if (shape.expert_bytes > 0) json["expert_bytes"] = shape.expert_bytes;
  return json.dump() + "\n";
}

// For the owner alone: ids of tokens are their text. A failure shows in the stream.
void Make(const std::string& path, std::ofstream& stream) {
  if (const int made = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600); made >= 0) close(made);
  stream.open(path, std::ios::binary | std::ios::trunc);
}

bool WriteTo(std::ofstream& file, std::string_view bytes) {
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return static_cast<bool>(file.flush());
}

}  // namespace

RoutingRecorder::RoutingRecorder(std::string directory, const RoutingShape& shape, size_t piece_bytes)
    : directory_(std::move(directory)),
      shape_(shape),
      index_(shape.layers, shape.experts, 1),
      token_values_(shape.layers.size() * static_cast<size_t>(shape.top_k)),
      piece_tokens_(std::max<size_t>(1, piece_bytes / (token_values_ * kValueBytes + kTokenBytes))) {}

std::string NextTraceFolder(const std::string& directory) {
  std::error_code error;
  for (int number = 2;; ++number) {
    std::string folder = StrCat(directory, "/", number);
    if (!std::filesystem::exists(StrCat(folder, "/", kTraceIndex), error)) return folder;
  }
}

absl::StatusOr<std::unique_ptr<RoutingRecorder>> RoutingRecorder::Create(const std::string& directory, const RoutingShape& shape,
                                                                         uint64_t budget,
                                                                         std::function<void(const absl::Status&)> failed) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return FailedPrecondition(directory, ": cannot be made: ", error.message());
  const auto path = [&](std::string_view name) { return StrCat(directory, "/", name); };
  if (std::filesystem::exists(path(kTraceIndex), error)) {
    return absl::AlreadyExistsError(StrCat(directory, ": holds a trace already; a new one needs a directory of its own"));
  }
  std::unique_ptr<RoutingRecorder> recorder(new RoutingRecorder(directory, shape, PieceBytes(budget)));
  recorder->told_failure_ = std::move(failed);
  Make(path(shape.wide() ? kTraceExperts16 : kTraceExperts8), recorder->experts_);
  Make(path(kTraceProbabilities), recorder->probabilities_);
  Make(path(kTraceIndex), recorder->sequences_index_);
  std::ofstream shape_file(path(kTraceShape), std::ios::trunc);
  shape_file << ShapeJson(shape);
  shape_file.close();
  if (!shape_file || !recorder->experts_ || !recorder->probabilities_ || !recorder->sequences_index_) {
    return FailedPrecondition(directory, ": cannot be written to");
  }
  return recorder;
}

void RoutingRecorder::OnRouted(const LayerRouting& routing) {
  const int position = index_.Position(routing.layer);
  for (const TokenRouting& token : routing.tokens) {
    if (token.phase == Phase::kDecode) Record(position, token);
  }
}

void RoutingRecorder::Record(int position, const TokenRouting& token) {
  if (!failure_.ok()) return;
  const size_t layer_values = static_cast<size_t>(shape_.top_k);
  Sequence& sequence = sequences_[token.sequence];
  if (position == 0) {  // whatever an abandoned step left is dropped
    sequence.tokens.reserve(piece_tokens_);
    sequence.experts.reserve(piece_tokens_ * token_values_);
    sequence.probabilities.reserve(piece_tokens_ * token_values_);
    sequence.experts.resize(sequence.tokens.size() * token_values_);
    sequence.probabilities.resize(sequence.experts.size());
    sequence.whole = true;
  }
  sequence.whole = sequence.whole && token.choices.size() == layer_values;
  if (!sequence.whole) return;
  for (const ExpertChoice& choice : token.choices) {
    sequence.experts.push_back(static_cast<uint16_t>(choice.expert));
    sequence.probabilities.push_back(static_cast<uint8_t>(std::lround(std::clamp(choice.probability, 0.f, 1.f) * 255)));
  }
  if (sequence.experts.size() < (sequence.tokens.size() + 1) * token_values_) return;
  sequence.tokens.push_back(token.token);
  if (sequence.tokens.size() == piece_tokens_) Write(sequence);
}

void RoutingRecorder::OnSequenceEnd(SequenceId sequence) {
  const auto found = sequences_.find(sequence);
  if (found == sequences_.end()) return;
  Write(found->second);
  sequences_.erase(found);
}

void RoutingRecorder::Write(Sequence& sequence) {
  const size_t values = sequence.tokens.size() * token_values_;
  std::string bytes;
  bytes.reserve(values * (shape_.wide() ? 2 : 1));
  for (size_t i = 0; i < values; ++i) {
    bytes.push_back(static_cast<char>(sequence.experts[i] & 0xff));
    if (shape_.wide()) bytes.push_back(static_cast<char>(sequence.experts[i] >> 8));
  }
  if (!sequence.tokens.empty()) {
    nlohmann::ordered_json line = {{"first", tokens_written_}, {"n", sequence.tokens.size()}};
    for (const TokenId token : sequence.tokens) line["token_ids"].push_back(token.value());
    Append(bytes, {reinterpret_cast<const char*>(sequence.probabilities.data()), values}, line.dump() + "\n");
    if (failure_.ok()) tokens_written_ += sequence.tokens.size();
  }
  sequence = {};
}

// In this order: what a line names is there, whenever the process ends.
void RoutingRecorder::Append(std::string_view experts, std::string_view probabilities, std::string_view line) {
  if (!failure_.ok()) return;
  if (WriteTo(experts_, experts) && WriteTo(probabilities_, probabilities) && WriteTo(sequences_index_, line)) {
    index_bytes_ += line.size();
    return;
  }
  failure_ = DataLoss(directory_, ": writing the trace failed; is the disk full?");
  CutToWhole();
  if (told_failure_) told_failure_(failure_);
}

// What a file has of the piece that failed would make the trace unreadable.
void RoutingRecorder::CutToWhole() {
  const uint64_t values = tokens_written_ * token_values_;
  const auto cut = [this](std::ofstream& file, std::string_view name, uint64_t bytes) {
    file.close();  // writes what it still can
    std::error_code error;
    std::filesystem::resize_file(StrCat(directory_, "/", name), bytes, error);
  };
  cut(sequences_index_, kTraceIndex, index_bytes_);
  cut(probabilities_, kTraceProbabilities, values);
  shape_.wide() ? cut(experts_, kTraceExperts16, 2 * values) : cut(experts_, kTraceExperts8, values);
}

absl::Status RoutingRecorder::Finish() {
  for (auto& [id, sequence] : sequences_) Write(sequence);
  sequences_.clear();
  MOED_RETURN_IF_ERROR(failure_);
  for (std::ofstream* file : {&experts_, &probabilities_, &sequences_index_}) file->close();
  for (const std::string_view name : {shape_.wide() ? kTraceExperts16 : kTraceExperts8, kTraceProbabilities, kTraceIndex}) {
    std::error_code error;
    if (!std::filesystem::exists(StrCat(directory_, "/", name), error))
      return DataLoss(directory_, ": ", name, " of the trace was removed while it was written");
  }
  return absl::OkStatus();
}

}  // namespace moed
