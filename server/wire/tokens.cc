#include "server/wire/tokens.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "core/base/bounded_file.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr size_t kMostTokens = 4096;  // each of which every call is compared with
constexpr size_t kMostFileBytes = 4 << 20;
constexpr std::string_view kBearer = "Bearer ";

}  // namespace

absl::StatusOr<Tokens::Lines> Tokens::ReadLines(const std::string& path) {
  const absl::StatusOr<std::string> contents = ReadBoundedFile(path, kMostFileBytes);
  if (!contents.ok()) return Annotate(contents.status(), "--tokens");
  std::istringstream file(*contents);
  Lines lines;
  std::string text;
  for (int number = 1; std::getline(file, text); ++number) {
    if (text.ends_with('\r')) text.pop_back();
    if (text.empty() || text[0] == '#') continue;
    auto line = ParseTokenLine(text);
    if (!line.ok()) return InvalidArgument("--tokens: line ", number, " of '", path, "': ", line.status().message());
    const bool known = std::ranges::any_of(lines, [&](const TokenLine& other) { return other.hash == line->hash; });
    if (known) return InvalidArgument("--tokens: line ", number, " of '", path, "' has the hash of an earlier line");
    const auto same = std::ranges::find(lines, line->name, &TokenLine::name);
    if (same != lines.end() && same->limits != line->limits) {
      return InvalidArgument("--tokens: line ", number, " of '", path, "' has other limits than an earlier line of ", line->name);
    }
    lines.push_back(*std::move(line));
    if (lines.size() > kMostTokens) return InvalidArgument("--tokens: '", path, "' holds more than ", kMostTokens, " tokens");
  }
  if (lines.empty()) return InvalidArgument("--tokens: '", path, "' holds no token; moectl token new NAME SCOPES makes one");
  return lines;
}

absl::StatusOr<std::unique_ptr<Tokens>> Tokens::Read(const std::string& path) {
  MOED_ASSIGN_OR_RETURN(Lines lines, ReadLines(path));
  return std::unique_ptr<Tokens>(new Tokens(path, std::move(lines)));
}

absl::StatusOr<std::string> Tokens::Check(std::string_view token, Scope scope) const {
  const std::shared_ptr<const Lines> lines = this->lines();
  const TokenHash hash = HashOfToken(token);
  const TokenLine* found = nullptr;
  for (const TokenLine& line : *lines) {
    if (CRYPTO_memcmp(line.hash.data(), hash.data(), hash.size()) == 0) found = &line;
  }
  if (token.empty()) return absl::UnauthenticatedError("a token is needed: authorization: Bearer TOKEN");
  if (found == nullptr) return absl::UnauthenticatedError("the token is not one that the server knows");
  if (found->scopes.Has(scope)) return found->name;
  return absl::PermissionDeniedError(
      StrCat("the token of ", found->name, " lacks the scope ", ScopeName(scope), ": it has ", found->scopes.Text()));
}

TenantLimits Tokens::LimitsOf(std::string_view name) const {
  const std::shared_ptr<const Lines> lines = this->lines();
  const auto found = std::ranges::find(*lines, name, &TokenLine::name);
  return found == lines->end() ? TenantLimits() : found->limits;
}

std::vector<std::pair<std::string, TenantLimits>> Tokens::List() const {
  std::map<std::string, TenantLimits> names;
  for (const TokenLine& line : *lines()) names.emplace(line.name, line.limits);
  return {names.begin(), names.end()};
}

absl::Status Tokens::Reload() {
  MOED_ASSIGN_OR_RETURN(Lines lines, ReadLines(path_));
  auto read = std::make_shared<const Lines>(std::move(lines));
  absl::MutexLock lock(&mutex_);
  lines_ = std::move(read);
  return absl::OkStatus();
}

std::string TokenOf(std::string_view authorization, std::string_view x_api_key) {
  const bool is_bearer = absl::StartsWithIgnoreCase(ToAbsl(authorization), ToAbsl(kBearer));
  return std::string(is_bearer ? authorization.substr(kBearer.size()) : x_api_key);
}

}  // namespace moed
