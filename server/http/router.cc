#include "server/http/router.h"

#include "core/base/status.h"

namespace moed::http {
namespace {

constexpr std::string_view kJsonType = "application/json";

bool Matches(std::string_view route, std::string_view path) {
  const bool is_folder = route.size() > 1 && route.ends_with('/');
  return is_folder ? path.starts_with(route) && path.size() > route.size() : path == route;
}

// "application/json; charset=utf-8". Pages of other sites can send other types without being asked for leave.
bool IsJson(std::string_view content_type) {
  return content_type.starts_with(kJsonType) &&
         (content_type.size() == kJsonType.size() || content_type[kJsonType.size()] == ';');
}

// Triton's clients name no type, which a page can do as well; but a browser says where a page is from.
bool MayBeTensors(const HttpRequest& head) {
  const std::string_view type = head.Value("content-type");
  return type == "application/octet-stream" || (type.empty() && head.Value("origin").empty());
}

}  // namespace

const Route* Router::Find(std::string_view method, std::string_view path) const {
  for (const Route& route : routes_) {
    if ((method.empty() || route.method == method) && Matches(route.path, path)) return &route;
  }
  return nullptr;
}

std::optional<HttpReply> Router::Admit(HttpRequest& head) {
  const Route* any = Find("", head.path);
  if (any == nullptr)
    return error_({.status = 404, .message = StrCat("there is no ", head.path.substr(0, 128)), .code = "not_found"});
  const Route* route = Find(head.method, head.path);
  if (route == nullptr) {
    HttpReply reply = any->error({.status = 405, .message = StrCat("the method is ", any->method), .code = "method_not_allowed"});
    reply.headers.push_back({"allow", std::string(any->method)});
    return reply;
  }
  if (route->open) return std::nullopt;
  head.token = TokenOf(head.Value("authorization"), head.Value("x-api-key"));
  if (tokens_ != nullptr) {
    auto caller = tokens_->Check(head.token, route->scope);
    if (!caller.ok()) {
      HttpReply reply = route->error(ErrorOf(caller.status()));
      if (absl::IsUnauthenticated(caller.status())) reply.headers.push_back({"www-authenticate", "Bearer"});
      return reply;
    }
    head.caller = *std::move(caller);
  }
  if (draining_) return route->error({.status = 503, .message = "the server is ending", .code = "unavailable"});
  if (route->method == "POST" && !(IsJson(head.Value("content-type")) || (route->tensors && MayBeTensors(head)))) {
    const std::string_view also = route->tensors ? " or application/octet-stream" : "";
    return route->error(
        {.status = 415, .message = StrCat("the content-type must be application/json", also), .code = "unsupported_media_type"});
  }
  return std::nullopt;
}

void Router::Handle(std::shared_ptr<Exchange> exchange) {
  const HttpRequest& request = exchange->request();
  Find(request.method, request.path)->handle(exchange);
}

HttpReply Router::Refusal(std::string_view path, int status, std::string_view message) {
  const Route* route = Find("", path);
  return (route == nullptr ? error_ : route->error)({.status = status, .message = std::string(message)});
}

}  // namespace moed::http
