#include "server/http/allowed_origins.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "core/base/status.h"

namespace moed::http {
namespace {

constexpr std::string_view kSchemeEnd = "://";
// After which a browser asks for leave again: no browser keeps it for longer.
constexpr std::string_view kLeaveSeconds = "7200";
constexpr std::pair<std::string_view, std::string_view> kDefaultPorts[] = {{"http", ":80"}, {"https", ":443"}};

template <class Allowed>
bool Consists(std::string_view text, Allowed allowed) {
  return !text.empty() && std::ranges::all_of(text, [&](char c) { return allowed(static_cast<unsigned char>(c)); });
}

bool IsScheme(std::string_view text) {
  return Consists(text, [](unsigned char c) { return absl::ascii_isalnum(c) || c == '+' || c == '-' || c == '.'; }) &&
         absl::ascii_isalpha(static_cast<unsigned char>(text[0]));
}

bool IsHost(std::string_view text) {
  if (text.starts_with('[')) {
    return text.ends_with(']') && Consists(text.substr(1, text.size() - 2),
                                           [](unsigned char c) { return absl::ascii_isxdigit(c) || c == ':' || c == '.'; });
  }
  return Consists(text, [](unsigned char c) { return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_'; });
}

// ":8080", or nothing.
bool IsPort(std::string_view text) {
  constexpr size_t kMostDigits = 5;
  int port = 0;
  if (text.empty()) return true;
  text.remove_prefix(1);
  return text.size() <= kMostDigits && Consists(text, absl::ascii_isdigit) && absl::SimpleAtoi(ToAbsl(text), &port) &&
         port >= 1 && port <= 65535;
}

// As browsers write it: in lower case, and without the port that the scheme has anyway.
absl::StatusOr<std::string> ParseOrigin(std::string_view text) {
  const size_t scheme_end = text.find(kSchemeEnd);
  const std::string_view scheme = text.substr(0, scheme_end);
  const std::string_view rest = scheme_end == std::string_view::npos ? "" : text.substr(scheme_end + kSchemeEnd.size());
  const size_t port_begin = rest.find(':', rest.starts_with('[') ? rest.find(']') : 0);
  const std::string_view host = rest.substr(0, port_begin);
  const std::string_view port = port_begin == std::string_view::npos ? "" : rest.substr(port_begin);
  if (!IsScheme(scheme) || !IsHost(host) || !IsPort(port)) {
    return InvalidArgument("\"", text.substr(0, 256), "\" is no origin, which is SCHEME://HOST or SCHEME://HOST:PORT, as ",
                           "https://chat.example.com; or give * alone for all of them");
  }
  std::string origin = absl::AsciiStrToLower(ToAbsl(text));
  for (const auto& [with_default, default_port] : kDefaultPorts) {
    if (port == default_port && std::string_view(origin).substr(0, scheme_end) == with_default)
      origin.resize(origin.size() - port.size());
  }
  return origin;
}

// Names of headers, as they are asked for: they go back as they came.
bool IsHeaderList(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~, \t";
  return Consists(text,
                  [&](unsigned char c) { return absl::ascii_isalnum(c) || kMarks.find(static_cast<char>(c)) != kMarks.npos; });
}

}  // namespace

absl::StatusOr<AllowedOrigins> AllowedOrigins::Parse(std::string_view text) {
  AllowedOrigins allowed;
  allowed.all_ = text == "*";
  for (size_t begin = 0; !allowed.all_ && begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    MOED_ASSIGN_OR_RETURN(std::string origin, ParseOrigin(text.substr(begin, end - begin)));
    allowed.origins_.push_back(std::move(origin));
    begin = end + 1;
  }
  return allowed;
}

bool AllowedOrigins::Has(std::string_view origin) const {
  return !origin.empty() && (all_ || std::ranges::find(origins_, origin) != origins_.end());
}

// Where the answer depends on who asks, whatever keeps it has to know.
std::vector<Header> AllowedOrigins::HeadersFor(const HttpRequest& request) const {
  std::vector<Header> headers;
  const std::string_view origin = request.Value("origin");
  if (all_ || !origins_.empty()) headers.push_back({"vary", "Origin"});
  if (!Has(origin)) return headers;
  headers.push_back({"access-control-allow-origin", all_ ? "*" : std::string(origin)});
  headers.push_back({"access-control-expose-headers", "*"});
  return headers;
}

bool AllowedOrigins::IsPreflight(const HttpRequest& request) const {
  return request.method == "OPTIONS" && !request.Value("access-control-request-method").empty() && Has(request.Value("origin"));
}

HttpReply AllowedOrigins::Leave(const HttpRequest& preflight, const std::string& methods) const {
  HttpReply reply{.content_type = "text/plain",
                  .headers = {{"access-control-allow-methods", methods}, {"access-control-max-age", std::string(kLeaveSeconds)}}};
  const std::string_view asked = preflight.Value("access-control-request-headers");
  if (IsHeaderList(asked)) reply.headers.push_back({"access-control-allow-headers", std::string(asked)});
  return reply;
}

}  // namespace moed::http
