#include "server/wire/token_line.h"

#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr ScopeRow kScopes[] = {
    {Scope::kInfer, "infer", "ask the model"},
    {Scope::kObserve, "observe", "see what Control tells: server, model, statistics, conversations"},
    {Scope::kControl, "control", "change what Control changes: abort requests, drain"},
};
constexpr size_t kMostNameBytes = 64;
constexpr std::string_view kForm = "a line is NAME SCOPES SHA256-HEX (moectl token new NAME SCOPES makes one)";

bool IsOfName(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || std::string_view("._-@").find(c) != std::string_view::npos;
}

absl::string_view BytesOf(const TokenHash& hash) { return {reinterpret_cast<const char*>(hash.data()), hash.size()}; }

}  // namespace

std::span<const ScopeRow> Scopes() { return kScopes; }

std::string_view ScopeName(Scope scope) { return kScopes[static_cast<size_t>(scope)].name; }

absl::StatusOr<ScopeSet> ScopeSet::Parse(std::string_view text) {
  ScopeSet scopes;
  for (const absl::string_view name : absl::StrSplit(ToAbsl(text), ',')) {
    const auto* row = std::ranges::find_if(kScopes, [&](const ScopeRow& known) { return ToAbsl(known.name) == name; });
    if (row == std::end(kScopes)) {
      return InvalidArgument("unknown scope \"", name.substr(0, kMostNameBytes), "\"; allowed are, with commas between them: ",
                             JoinNames(kScopes, [](const ScopeRow& s) { return s.name; }));
    }
    scopes.Add(row->scope);
  }
  return scopes;
}

std::string ScopeSet::Text() const {
  std::string text;
  for (const ScopeRow& row : kScopes) {
    if (Has(row.scope)) text += StrCat(text.empty() ? "" : ",", row.name);
  }
  return text;
}

TokenHash HashOfToken(std::string_view token) {
  TokenHash hash;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), hash.data());
  return hash;
}

std::string TokenLine::Text() const { return StrCat(name, " ", scopes.Text(), " ", absl::BytesToHexString(BytesOf(hash))); }

absl::Status CheckTokenName(std::string_view name) {
  if (!name.empty() && name.size() <= kMostNameBytes && std::ranges::all_of(name, IsOfName)) return absl::OkStatus();
  return InvalidArgument("a name has 1 to ", kMostNameBytes, " letters, digits, '.', '_', '-' or '@'");
}

absl::StatusOr<TokenLine> ParseTokenLine(std::string_view line) {
  const std::vector<std::string> words = absl::StrSplit(ToAbsl(line), absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (words.size() != 3) return InvalidArgument(words.size(), " words; ", kForm);
  TokenLine token;
  MOED_RETURN_IF_ERROR(CheckTokenName(words[0]));
  token.name = words[0];
  MOED_ASSIGN_OR_RETURN(token.scopes, ScopeSet::Parse(words[1]));
  const bool is_hash = words[2].size() == 2 * token.hash.size() &&
                       std::ranges::all_of(words[2], [](unsigned char c) { return absl::ascii_isxdigit(c); });
  if (!is_hash) return InvalidArgument("the third word is no SHA-256 in ", 2 * token.hash.size(), " hexadecimal digits; ", kForm);
  std::ranges::copy(absl::HexStringToBytes(words[2]), token.hash.begin());
  return token;
}

absl::StatusOr<std::string> DrawToken() {
  TokenHash random;
  if (RAND_bytes(random.data(), static_cast<int>(random.size())) != 1) return Internal("OpenSSL has no random numbers");
  return StrCat("moed_", absl::BytesToHexString(BytesOf(random)));
}

}  // namespace moed
