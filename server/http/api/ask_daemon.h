// A question that the daemon answers at once, beside what it computes.
#pragma once

#include <memory>
#include <utility>

#include "grpcpp/support/status.h"
#include "server/http/api/passed_headers.h"
#include "server/http/transport/exchange.h"
#include "server/http/upstream/call.h"
#include "server/http/upstream/daemon.h"

namespace moed::http {

// `method`: the daemon's, (stub, context, request, response, call). `reply`: of its status and its answer.
template <class Response, class Request, class Method, class Reply>
void AskDaemon(Daemon& daemon, const std::shared_ptr<Exchange>& exchange, Request request, Method method, Reply reply) {
  const auto asked = std::make_shared<const Request>(std::move(request));
  if (!exchange->HoldRequest(asked->SpaceUsedLong()))
    return exchange->Reply(reply(grpc::Status(grpc::StatusCode::UNAVAILABLE, kTooManyLargeRequests), Response()));
  const auto call = std::make_shared<UnaryCall<Response>>(daemon.calls());
  call->Start([exchange, reply = std::move(reply)](const grpc::Status& status,
                                                   const Response& answer) { exchange->Reply(reply(status, answer)); },
              [&](auto* context, auto* response, auto* unary) {
                NameTrace(exchange->request().trace_parent, *context);
                PresentToken(exchange->request().token, *context);
                method(*daemon.inference(asked, *unary).async(), context, asked.get(), response, unary);
              });
  exchange->OnGone([call] { call->Cancel(); });
}

}  // namespace moed::http
