#include "server/http/api/passed_headers.h"

#include "core/base/status.h"
#include "core/base/trace_parent.h"
#include "proto/metadata.h"

namespace moed::http {

absl::Status CheckSessionName(std::string_view said, const std::string& session_id) {
  return said == session_id ? absl::OkStatus() : InvalidArgument("session_id: is not what the header ", kSessionIdKey, " says");
}

absl::Status CheckSessionHeader(const HttpRequest& request, const std::string& session_id) {
  for (const Header& header : request.headers) {
    if (header.name == kSessionIdKey) MOED_RETURN_IF_ERROR(CheckSessionName(header.value, session_id));
  }
  return absl::OkStatus();
}

void NameSession(const std::string& session_id, grpc::ClientContext& context) {
  if (FitsMetadata(session_id)) context.AddMetadata(kSessionIdKey, session_id);
}

void NameTopic(const std::string& topic, grpc::ClientContext& context) {
  if (FitsMetadata(topic)) context.AddMetadata(kTopicKey, topic);
}

void PresentToken(const std::string& token, grpc::ClientContext& context) {
  if (FitsMetadata(token)) context.AddMetadata("authorization", "Bearer " + token);
}

std::vector<Header> QueueHeaders(const std::multimap<grpc::string_ref, grpc::string_ref>& initial_metadata) {
  std::vector<Header> headers;
  for (const char* name : {kQueuePositionKey, kQueueSecondsKey}) {
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
