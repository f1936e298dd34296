// What of a request's headers goes on to the daemon: moe-session-id and moe-topic, by which proxies choose a server, traceparent,
// and the token; and what of the daemon's metadata comes back.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "grpcpp/client_context.h"
#include "server/http/transport/exchange.h"

namespace moed::http {

// INVALID_ARGUMENT where the header is there and says something else than the body. It never stands for the body's field.
absl::Status CheckSessionHeader(const HttpRequest& request, const std::string& session_id);

// The same of a header's value.
absl::Status CheckSessionName(std::string_view said, const std::string& session_id);

// Says them to the daemon as well, for proxies on the way; what metadata cannot hold is left out.
void NameSession(const std::string& session_id, grpc::ClientContext& context);
void NameTopic(const std::string& topic, grpc::ClientContext& context);

// Who asks here asks the daemon: `token` is what the caller presented, if anything. What metadata cannot hold is left out.
void PresentToken(const std::string& token, grpc::ClientContext& context);

// What the daemon said of its queue: moe-queue-position and moe-queue-seconds.
std::vector<Header> QueueHeaders(const std::multimap<grpc::string_ref, grpc::string_ref>& initial_metadata);

// `trace_parent`: HttpRequest's.
void NameTrace(const std::string& trace_parent, grpc::ClientContext& context);

}  // namespace moed::http
