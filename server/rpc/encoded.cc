#include "server/rpc/encoded.h"

#include <array>
#include <cstdint>
#include <utility>

#include "google/protobuf/io/coded_stream.h"
#include "grpcpp/support/slice.h"

namespace moed {
namespace {

// Tag and length of a text field; nothing for an empty one.
std::string TextHeader(int field, size_t length) {
  if (length == 0) return "";
  using google::protobuf::io::CodedOutputStream;
  std::array<uint8_t, 16> bytes{};
  uint8_t* end = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(field) << 3 | 2, bytes.data());
  end = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(length), end);
  return std::string(bytes.data(), end);
}

}  // namespace

void AppendEncoded(Encoded& to, Encoded&& from) {
  to.text += from.text;
  to.reasoning += from.reasoning;
  to.rest += from.rest;
}

void AddFields(const google::protobuf::MessageLite& part, Encoded& to) { part.AppendToString(&to.rest); }

grpc::ByteBuffer ToByteBuffer(const Encoded& message) {
  std::string bytes;
  const std::string of_text = TextHeader(kGeneratedTextField, message.text.size());
  const std::string of_reasoning = TextHeader(kReasoningField, message.reasoning.size());
  bytes.reserve(message.head.size() + of_text.size() + message.text.size() + of_reasoning.size() + message.reasoning.size() +
                message.rest.size());
  bytes.append(message.head).append(of_text).append(message.text);
  bytes.append(of_reasoning).append(message.reasoning).append(message.rest);
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace moed
