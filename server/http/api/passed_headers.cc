#include "server/http/api/passed_headers.h"

#include <algorithm>

#include "core/base/status.h"
#include "core/base/trace_parent.h"

namespace moed::http {
namespace {

constexpr size_t kMostBytes = 1024;  // of a value; gRPC takes 8 KiB of metadata

bool Prints(const std::string& value) {
  return !value.empty() && std::all_of(value.begin(), value.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

absl::Status CheckSessionName(std::string_view said, const std::string& session_id) {
  return said == session_id ? absl::OkStatus() : InvalidArgument("session_id: is not what the header ", kSessionHeader, " says");
}

absl::Status CheckSessionHeader(const HttpRequest& request, const std::string& session_id) {
  for (const Header& header : request.headers) {
    if (header.name == kSessionHeader) MOED_RETURN_IF_ERROR(CheckSessionName(header.value, session_id));
  }
  return absl::OkStatus();
}

void NameSession(const std::string& session_id, grpc::ClientContext& context) {
  if (session_id.size() <= kMostBytes && Prints(session_id)) context.AddMetadata(kSessionHeader, session_id);
}

void NameTopic(const std::string& topic, grpc::ClientContext& context) {
  if (topic.size() <= kMostBytes && Prints(topic)) context.AddMetadata(kTopicHeader, topic);
}

void PresentToken(const std::string& token, grpc::ClientContext& context) {
  if (token.size() <= kMostBytes && Prints(token)) context.AddMetadata("authorization", "Bearer " + token);
}

std::vector<Header> QueueHeaders(const std::multimap<grpc::string_ref, grpc::string_ref>& initial_metadata) {
  std::vector<Header> headers;
  for (const char* name : {"moe-queue-position", "moe-queue-seconds"}) {
    const auto found = initial_metadata.find(name);
    if (found == initial_metadata.end()) continue;
    const std::string value(found->second.data(), found->second.size());
    const bool is_number = value.find_first_not_of("0123456789.") == std::string::npos;
    if (is_number) headers.push_back({name, value});
  }
  return headers;
}

void NameTrace(const std::string& trace_parent, grpc::ClientContext& context) {
  if (!trace_parent.empty()) context.AddMetadata(kTraceParentKey, trace_parent);
}

}  // namespace moed::http
