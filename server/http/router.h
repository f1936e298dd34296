// Which paths there are, who may ask for them, and in which form an API tells its errors.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/allowed_origins.h"
#include "server/http/api/api_error.h"
#include "server/http/transport/handler.h"
#include "server/wire/tokens.h"

namespace moed::http {

struct Route {
  std::string_view method;
  std::string_view path;  // ends in "/": whatever goes on after it
  bool open = false;      // to those without a token, and during the drain
  HttpReply (*error)(const ApiError& error);
  std::function<void(const std::shared_ptr<Exchange>& exchange)> handle;
  bool tensors = false;             // bodies may have bytes after their JSON
  Scope scope = Scope::kInfer;      // that a caller needs
  std::string_view id_header = "";  // in which answers have the request's id beside x-request-id
};

// Of paths that there are not: an API has its own form of errors for all that it might be asked.
struct ErrorForm {
  std::string_view prefix;
  HttpReply (*error)(const ApiError& error);
};

class Router final : public RequestHandler {
 public:
  // `tokens` outlive the router; null: everybody may ask.
  // `forms`: the first one whose prefix a path has; the last one's is "".
  Router(std::vector<Route> routes, const Tokens* tokens, std::vector<ErrorForm> forms, AllowedOrigins origins)
      : routes_(std::move(routes)), tokens_(tokens), forms_(std::move(forms)), origins_(std::move(origins)) {}

  // From now on only open routes are answered.
  void Drain() { draining_ = true; }

  std::optional<HttpReply> Admit(HttpRequest& head) override;
  void Handle(std::shared_ptr<Exchange> exchange) override;
  std::vector<Header> CommonHeaders(const HttpRequest& request) override { return origins_.HeadersFor(request); }
  HttpReply Refusal(std::string_view path, int status, std::string_view message) override;

  // The path of the route that answers this one; "" where there is none.
  std::string_view RouteOf(std::string_view path) const;

 private:
  const Route* Find(std::string_view method, std::string_view path) const;  // of any method where `method` is ""

  HttpReply Unknown(std::string_view path, const ApiError& error) const;
  std::string Methods(std::string_view path) const;  // "GET, HEAD"

  const std::vector<Route> routes_;
  const Tokens* const tokens_;
  const std::vector<ErrorForm> forms_;
  const AllowedOrigins origins_;
  std::atomic<bool> draining_ = false;
};

}  // namespace moed::http
