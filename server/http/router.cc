#include "server/http/router.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "core/base/status.h"

namespace moed::http {
namespace {

constexpr std::string_view kJsonType = "application/json";

bool Matches(std::string_view route, std::string_view path) {
  const bool is_folder = route.size() > 1 && route.ends_with('/');
  return is_folder ? path.starts_with(route) && path.size() > route.size() : path == route;
}

// Of "Application/JSON ; charset=utf-8" (RFC 9110, section 8.3.1), in lower case.
std::string MediaType(std::string_view content_type) {
  return absl::AsciiStrToLower(absl::StripAsciiWhitespace(ToAbsl(content_type.substr(0, content_type.find(';')))));
}

// Pages of other sites can send other types without being asked for leave.
bool IsJson(const HttpRequest& head) { return MediaType(head.Value("content-type")) == kJsonType; }

// Triton's clients name no type, which a page can do as well; but a browser says where a page is from.
bool MayBeTensors(const HttpRequest& head) {
  const std::string type = MediaType(head.Value("content-type"));
  return type == "application/octet-stream" || (type.empty() && head.Value("origin").empty());
}

// Clients put their paths behind a base URL that may end with a slash, or end paths so.
std::string WithoutEmptyEnds(std::string_view path) {
  while (path.starts_with("//")) path.remove_prefix(1);
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return std::string(path);
}

// HEAD is answered as GET is, the body aside.
std::string_view RoutedMethod(std::string_view method) { return method == "HEAD" ? "GET" : method; }

}  // namespace

const Route* Router::Find(std::string_view method, std::string_view path) const {
  for (const Route& route : routes_) {
    if ((method.empty() || route.method == method) && Matches(route.path, path)) return &route;
  }
  return nullptr;
}

HttpReply Router::Unknown(std::string_view path, const ApiError& error) const {
  return std::ranges::find_if(forms_, [&](const ErrorForm& form) { return path.starts_with(form.prefix); })->error(error);
}

std::string Router::Methods(std::string_view path) const {
  std::string methods;
  for (const Route& route : routes_) {
    if (!Matches(route.path, path)) continue;
    methods += StrCat(methods.empty() ? "" : ", ", route.method, route.method == "GET" ? ", HEAD" : "");
  }
  return methods;
}

std::optional<HttpReply> Router::Admit(HttpRequest& head) {
  head.path = WithoutEmptyEnds(head.path);
  const Route* any = Find("", head.path);
  if (any == nullptr)
    return Unknown(head.path, {.status = 404, .message = StrCat("there is no ", head.path.substr(0, 128)), .code = "not_found"});
  head.id_header = any->id_header;
  if (origins_.IsPreflight(head)) return origins_.Leave(head, Methods(head.path));  // without a token: browsers send none
  const Route* route = Find(RoutedMethod(head.method), head.path);
  if (route == nullptr) {
    const std::string methods = Methods(head.path);
    HttpReply reply = any->error({.status = 405, .message = StrCat("allowed are: ", methods), .code = "method_not_allowed"});
    reply.headers.push_back({"allow", methods});
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
  if (route->method == "POST" && !(IsJson(head) || (route->tensors && MayBeTensors(head)))) {
    const std::string_view also = route->tensors ? " or application/octet-stream" : "";
    return route->error(
        {.status = 415, .message = StrCat("the content-type must be application/json", also), .code = "unsupported_media_type"});
  }
  return std::nullopt;
}

void Router::Handle(std::shared_ptr<Exchange> exchange) {
  const HttpRequest& request = exchange->request();
  Find(RoutedMethod(request.method), request.path)->handle(exchange);
}

std::string_view Router::RouteOf(std::string_view path) const {
  const Route* const route = Find("", path);
  return route == nullptr ? std::string_view() : route->path;
}

HttpReply Router::Refusal(std::string_view path, int status, std::string_view message) {
  const Route* route = Find("", path);
  const ApiError error{.status = status, .message = std::string(message)};
  return route == nullptr ? Unknown(path, error) : route->error(error);
}

}  // namespace moed::http
