// A message as it came over the wire: what it would hold is read off its bytes before anything is allocated for it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "server/wire/error_details.h"

namespace moed {

struct FieldLimit {
  std::string_view path;               // "stopping.stop_strings"
  std::optional<size_t> entries = {};  // of a repeated field
  std::optional<size_t> bytes = {};    // of a string; where it is repeated, of each
  std::string remedy = {};             // what to do about it
  std::string_view name = {};          // as clients know it; empty: the path
  std::optional<int> context = {};     // of how many tokens, where no context holds more than the limit
};

// What messages of one type may hold. Thread-safe.
class MessageLimits {
 public:
  // A path that `type` does not have breaks an invariant.
  MessageLimits(const google::protobuf::Descriptor& type, std::vector<FieldLimit> limits, size_t unknown_bytes);

  // INVALID_ARGUMENT, known by IsTooMuch, that names every field that holds more than it may, with value and limit, and is
  // BeyondContext where one of them is; also for bytes that are no message, which IsTooMuch does not know.
  absl::Status Check(const grpc::ByteBuffer& message) const;

 private:
  class Census;
  struct Row {
    FieldLimit limit;
    const google::protobuf::FieldDescriptor* field;
  };

  const google::protobuf::Descriptor& type_;
  std::vector<Row> rows_;
  const size_t unknown_bytes_;
};

// INVALID_ARGUMENT for bytes that are no message of the type (or text in it that is not UTF-8). `bytes` is empty afterwards.
absl::Status ParseMessage(grpc::ByteBuffer& bytes, google::protobuf::Message& message);

// A string field of the message itself, found without parsing; "" when it is absent or longer than `most_bytes`.
std::string PeekString(const grpc::ByteBuffer& bytes, int field_number, size_t most_bytes);

}  // namespace moed
