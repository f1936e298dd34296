#include "server/http/api/session_header.h"

#include <algorithm>

#include "core/base/status.h"

namespace moed::http {
namespace {

constexpr const char* kHeader = "moe-session-id";

}  // namespace

absl::Status CheckSessionHeader(const HttpRequest& request, const std::string& session_id) {
  const bool same = std::all_of(request.headers.begin(), request.headers.end(),
                                [&](const Header& header) { return header.name != kHeader || header.value == session_id; });
  return same ? absl::OkStatus() : InvalidArgument("session_id: is not what the header ", kHeader, " says");
}

void NameSession(const std::string& session_id, grpc::ClientContext& context) {
  const bool prints = std::all_of(session_id.begin(), session_id.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (!session_id.empty() && prints) context.AddMetadata(kHeader, session_id);
}

}  // namespace moed::http
