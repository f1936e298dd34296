// Whose pages may ask from a browser, and read what is answered (CORS: https://fetch.spec.whatwg.org/#http-cors-protocol).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/http/transport/exchange.h"

namespace moed::http {

// Immutable. Default: nobody's.
class AllowedOrigins {
 public:
  // "*", or origins between commas, each SCHEME://HOST[:PORT] as browsers write them. INVALID_ARGUMENT names the one that is
  // none.
  static absl::StatusOr<AllowedOrigins> Parse(std::string_view text);

  // That every answer to `request` has.
  std::vector<Header> HeadersFor(const HttpRequest& request) const;
  // Whether a browser asks if an allowed page may ask.
  bool IsPreflight(const HttpRequest& request) const;
  // What it is told beside HeadersFor: that the page may, by `methods`.
  HttpReply Leave(const HttpRequest& preflight, const std::string& methods) const;

 private:
  bool Has(std::string_view origin) const;

  bool all_ = false;
  std::vector<std::string> origins_;
};

}  // namespace moed::http
