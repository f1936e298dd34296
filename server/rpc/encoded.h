// Answers as bytes on the wire, which is what waits for clients: a tenth of what messages in memory take.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "google/protobuf/message_lite.h"
#include "grpcpp/support/byte_buffer.h"

namespace moed {

// A response or a part of one. Fields of several parts, one after the other, are the fields of them merged; only text and
// reasoning are joined.
struct Encoded {
  std::string_view head = {};  // fields that every message has; outlive it
  std::string text;            // of the message's field `text`
  std::string reasoning = {};  // of the message's field `reasoning`
  std::string rest;            // all other fields

  // Memory that it takes at most: strings grow by doubling.
  size_t bytes() const { return 2 * (text.size() + reasoning.size() + rest.size()); }
};

void AppendEncoded(Encoded& to, Encoded&& from);

// Adds the fields of `part`.
void AddFields(const google::protobuf::MessageLite& part, Encoded& to);

grpc::ByteBuffer ToByteBuffer(const Encoded& message);

// The numbers of `text` and `reasoning` in the messages that have them.
inline constexpr int kGeneratedTextField = 2;
inline constexpr int kReasoningField = 3;

}  // namespace moed
