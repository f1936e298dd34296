// What the transport asks of the API above it.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "server/http/transport/exchange.h"

namespace moed::http {

// Called on the server's threads, by several at once.
class RequestHandler {
 public:
  virtual ~RequestHandler() = default;

  // Of the head alone, before anything of the body is read: what there is to refuse is refused here. Writes down who the caller
  // is.
  virtual std::optional<HttpReply> Admit(HttpRequest& head) = 0;
  // A whole request that was admitted. Must not block.
  virtual void Handle(std::shared_ptr<Exchange> exchange) = 0;
  // That every answer to this request has, whoever makes it; of one whose head could not be read, nothing is there.
  virtual std::vector<Header> CommonHeaders(const HttpRequest&) { return {}; }
  // An error of the transport in the form of the API that has this path ("" where it is not known).
  virtual HttpReply Refusal(std::string_view path, int status, std::string_view message) = 0;
};

}  // namespace moed::http
