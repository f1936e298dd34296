#include "core/chat/error.h"

#include <cstdlib>
#include <string>

#include "absl/strings/cord.h"

namespace moed::chat {
namespace {

constexpr absl::string_view kRaised = "moed/chat-template-raised";
constexpr absl::string_view kTooLong = "moed/chat-template-too-long";
constexpr absl::string_view kLine = "moed/chat-template-line";

}  // namespace

absl::Status Raised(std::string_view words) {
  absl::Status status = InvalidArgument(words);
  status.SetPayload(kRaised, absl::Cord("1"));
  return status;
}

bool IsRaised(const absl::Status& status) { return status.GetPayload(kRaised).has_value(); }

absl::Status TooLong(size_t most_bytes) {
  absl::Status status = ResourceExhausted("the chat template writes more than ", most_bytes, " bytes");
  status.SetPayload(kTooLong, absl::Cord("1"));
  return status;
}

bool IsTooLong(const absl::Status& status) { return status.GetPayload(kTooLong).has_value(); }

std::optional<int> LineOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kLine);
  if (!payload) return std::nullopt;
  return std::atoi(std::string(*payload).c_str());
}

absl::Status AtLine(absl::Status status, int line) {
  if (!status.ok() && !status.GetPayload(kLine)) status.SetPayload(kLine, absl::Cord(std::to_string(line)));
  return status;
}

}  // namespace moed::chat
