#include "server/wire/received_message.h"

#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "google/protobuf/io/coded_stream.h"
#include "grpcpp/impl/codegen/proto_utils.h"

namespace moed {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::io::CodedInputStream;

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr int kMostNesting = 8;  // messages of requests do not contain themselves

// False at the end of what is readable, and for groups, which nothing has sent for a decade.
bool SkipValue(CodedInputStream& in, uint32_t wire_type) {
  uint64_t number = 0;
  uint32_t length = 0;
  switch (wire_type) {
    case kVarint:
      return in.ReadVarint64(&number);
    case kFixed64:
      return in.Skip(8);
    case kBytes:
      return in.ReadVarint32(&length) && in.Skip(static_cast<int>(length));
    case kFixed32:
      return in.Skip(4);
    default:
      return false;
  }
}

bool IsText(const FieldDescriptor& field) {
  return field.type() == FieldDescriptor::TYPE_STRING || field.type() == FieldDescriptor::TYPE_BYTES;
}

uint32_t WireTypeOf(const FieldDescriptor& field) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_DOUBLE:
    case FieldDescriptor::TYPE_FIXED64:
    case FieldDescriptor::TYPE_SFIXED64:
      return kFixed64;
    case FieldDescriptor::TYPE_FLOAT:
    case FieldDescriptor::TYPE_FIXED32:
    case FieldDescriptor::TYPE_SFIXED32:
      return kFixed32;
    case FieldDescriptor::TYPE_STRING:
    case FieldDescriptor::TYPE_BYTES:
    case FieldDescriptor::TYPE_MESSAGE:
      return kBytes;
    default:
      return kVarint;
  }
}

const FieldDescriptor& FieldOf(const Descriptor& type, std::string_view path) {
  const size_t dot = path.find('.');
  const FieldDescriptor* field = type.FindFieldByName(std::string(path.substr(0, dot)));
  MOED_CHECK(field != nullptr);
  return dot == std::string_view::npos ? *field : FieldOf(*field->message_type(), path.substr(dot + 1));
}

absl::Status Undecodable(const Descriptor& type) {
  return FieldError("request", "is not a ", type.full_name(), " with text in UTF-8");
}

}  // namespace

// One walk over a message. Where a field or message comes several times, all of them count, as parsing merges them.
class MessageLimits::Census {
 public:
  explicit Census(const MessageLimits& limits)
      : limits_(limits), entries_(limits.rows_.size(), 0), longest_(limits.rows_.size()) {}

  bool Walk(CodedInputStream& in, const Descriptor& type, int depth = 0) {
    while (true) {
      const int begin = in.CurrentPosition();
      const uint32_t tag = in.ReadTag();
      if (tag == 0) return in.ConsumedEntireMessage();
      const FieldDescriptor* field = type.FindFieldByNumber(static_cast<int>(tag >> 3));
      const uint32_t wire_type = tag & 7;
      const bool packed = field != nullptr && field->is_packable() && wire_type == kBytes;
      if (field == nullptr || (wire_type != WireTypeOf(*field) && !packed)) {
        if (!SkipValue(in, wire_type)) return false;
        unknown_bytes_ += static_cast<size_t>(in.CurrentPosition() - begin);
      } else if (!(packed ? CountPacked(in, *field) : WalkValue(in, *field, wire_type, depth))) {
        return false;
      }
    }
  }

  absl::Status Verdict() const {
    FieldErrors errors;
    std::optional<int> context;
    for (size_t i = 0; i < limits_.rows_.size(); ++i) {
      const FieldLimit& limit = limits_.rows_[i].limit;
      const std::string name(limit.name.empty() ? limit.path : limit.name);
      const std::string remedy = limit.remedy.empty() ? "" : StrCat(": ", limit.remedy);
      if (limit.entries && entries_[i] > *limit.entries) {
        errors.Add(name, entries_[i], " entries, at most ", *limit.entries, " are allowed", remedy);
        if (limit.context) context = limit.context;
      } else if (limit.bytes && longest_[i].bytes > *limit.bytes) {
        const std::string place = limits_.rows_[i].field->is_repeated() ? StrCat(name, "[", longest_[i].entry, "]") : name;
        errors.Add(place, longest_[i].bytes, " bytes, at most ", *limit.bytes, " are allowed", remedy);
        if (limit.context) context = limit.context;
      }
    }
    if (unknown_bytes_ > limits_.unknown_bytes_) {
      errors.Add("request", unknown_bytes_, " bytes in fields that this version does not know, at most ", limits_.unknown_bytes_,
                 " are allowed");
    }
    absl::Status verdict = TooMuch(errors.ToStatus());
    return context ? BeyondContext(std::move(verdict), *context) : verdict;
  }

 private:
  struct Text {
    size_t bytes = 0;
    size_t entry = 0;
  };

  bool WalkValue(CodedInputStream& in, const FieldDescriptor& field, uint32_t wire_type, int depth) {
    const std::optional<size_t> row = RowOf(field);
    if (row) ++entries_[*row];
    if (wire_type != kBytes) return SkipValue(in, wire_type);
    uint32_t length = 0;
    if (!in.ReadVarint32(&length)) return false;
    if (IsText(field)) {
      if (row && length > longest_[*row].bytes) longest_[*row] = {length, entries_[*row] - 1};
      return in.Skip(static_cast<int>(length));
    }
    if (depth == kMostNesting || static_cast<int>(length) < 0) return false;
    const CodedInputStream::Limit outer = in.PushLimit(static_cast<int>(length));
    const bool whole = Walk(in, *field.message_type(), depth + 1) && in.BytesUntilLimit() == 0;
    in.PopLimit(outer);
    return whole;
  }

  bool CountPacked(CodedInputStream& in, const FieldDescriptor& field) {
    uint32_t length = 0;
    if (!in.ReadVarint32(&length) || static_cast<int>(length) < 0) return false;
    const CodedInputStream::Limit outer = in.PushLimit(static_cast<int>(length));
    const std::optional<size_t> row = RowOf(field);
    const uint32_t wire_type = WireTypeOf(field);
    while (in.BytesUntilLimit() > 0) {
      if (!SkipValue(in, wire_type)) return false;
      if (row) ++entries_[*row];
    }
    in.PopLimit(outer);
    return true;
  }

  std::optional<size_t> RowOf(const FieldDescriptor& field) const {
    for (size_t i = 0; i < limits_.rows_.size(); ++i) {
      if (limits_.rows_[i].field == &field) return i;
    }
    return std::nullopt;
  }

  const MessageLimits& limits_;
  std::vector<size_t> entries_;  // [row]
  std::vector<Text> longest_;    // [row]
  size_t unknown_bytes_ = 0;
};

MessageLimits::MessageLimits(const Descriptor& type, std::vector<FieldLimit> limits, size_t unknown_bytes)
    : type_(type), unknown_bytes_(unknown_bytes) {
  for (FieldLimit& limit : limits) {
    const FieldDescriptor& field = FieldOf(type, limit.path);
    rows_.push_back({std::move(limit), &field});
  }
}

absl::Status MessageLimits::Check(const grpc::ByteBuffer& message) const {
  grpc::ByteBuffer bytes = message;  // the same slices
  grpc::ProtoBufferReader reader(&bytes);
  CodedInputStream in(&reader);
  Census census(*this);
  if (bytes.Length() > 0 && !census.Walk(in, type_)) return Undecodable(type_);
  return census.Verdict();
}

absl::Status ParseMessage(grpc::ByteBuffer& bytes, google::protobuf::Message& message) {
  grpc::ProtoBufferReader reader(&bytes);
  const bool parsed = bytes.Length() == 0 || message.ParseFromZeroCopyStream(&reader);
  bytes.Clear();
  return parsed ? absl::OkStatus() : Undecodable(*message.GetDescriptor());
}

std::string PeekString(const grpc::ByteBuffer& message, int field_number, size_t most_bytes) {
  std::string found;
  if (message.Length() == 0) return found;
  grpc::ByteBuffer bytes = message;
  grpc::ProtoBufferReader reader(&bytes);
  CodedInputStream in(&reader);
  for (uint32_t tag; (tag = in.ReadTag()) != 0;) {
    uint32_t length = 0;
    if (tag != (static_cast<uint32_t>(field_number) << 3 | kBytes)) {
      if (!SkipValue(in, tag & 7)) break;
    } else if (!in.ReadVarint32(&length)) {
      break;
    } else if (length > most_bytes) {
      found.clear();
      if (!in.Skip(static_cast<int>(length))) break;
    } else if (!in.ReadString(&found, static_cast<int>(length))) {
      break;
    }
  }
  return found;
}

}  // namespace moed
