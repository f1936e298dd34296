#include "server/http/page.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "server/http/openai/reply.h"

namespace moed::http {
namespace {

constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
    {"/", "text/html; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".svg", "image/svg+xml"},
};

// Nothing from elsewhere, nothing that is not in a file of ours, in nobody's frame.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

std::string TypeOf(std::string_view path) {
  const auto* found = std::ranges::find_if(kTypes, [&](const auto& row) { return path.ends_with(row.first); });
  MOED_CHECK(found != std::end(kTypes));
  return std::string(found->second);
}

std::string TagOf(std::string_view contents) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> hash;
  SHA256(reinterpret_cast<const unsigned char*>(contents.data()), contents.size(), hash.data());
  std::string tag = "\"";
  for (int i = 0; i < 8; ++i) {
    tag += "0123456789abcdef"[hash[i] >> 4];
    tag += "0123456789abcdef"[hash[i] & 15];
  }
  return tag + "\"";
}

Route RouteOf(const PageFile& file) {
  const auto handle = [file, type = TypeOf(file.path), tag = TagOf(file.contents)](const std::shared_ptr<Exchange>& exchange) {
    const bool known = exchange->request().Value("if-none-match") == tag;
    exchange->Reply({.status = known ? 304 : 200,
                     .content_type = type,
                     .body = known ? "" : std::string(file.contents),
                     .headers = {{"etag", tag},
                                 {"cache-control", "no-cache"},
                                 {"content-security-policy", kPolicy},
                                 {"x-content-type-options", "nosniff"},
                                 {"referrer-policy", "no-referrer"}}});
  };
  return {"GET", file.path, true, OpenAiError, handle};
}

}  // namespace

std::vector<Route> PageRoutes() {
  std::vector<Route> routes;
  for (const PageFile& file : PageFiles()) routes.push_back(RouteOf(file));
  return routes;
}

}  // namespace moed::http
