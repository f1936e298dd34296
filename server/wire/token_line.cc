#include "server/wire/token_line.h"

#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
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
constexpr std::string_view kForm = "a line is NAME SCOPES SHA256-HEX [LIMIT=NUMBER]... (moectl token new NAME SCOPES makes one)";

template <std::optional<int> TenantLimits::*kField>
constexpr LimitRow RowOf(std::string_view name, std::string_view help, int least, int most) {
  return {name,
          help,
          least,
          most,
          [](const TenantLimits& limits) { return limits.*kField; },
          [](TenantLimits& limits, int value) { limits.*kField = value; }};
}
constexpr LimitRow kLimits[] = {
    {"weight", "share of what is computed while others wait, beside theirs", 1, 1000,
     [](const TenantLimits& limits) { return limits.weight == 1 ? std::nullopt : std::optional(limits.weight); },
     [](TenantLimits& limits, int value) { limits.weight = value; }},
    RowOf<&TenantLimits::max_running>("max-running", "requests that are computed at once", 1, 1024),
    RowOf<&TenantLimits::max_waiting>("max-waiting", "requests beside those that could run at once", 0, 65536),
    RowOf<&TenantLimits::tokens_per_minute>("tokens-per-minute", "of prompts and answers", 1, 1'000'000'000),
    RowOf<&TenantLimits::kv_percent>("kv-percent", "of keys and values, beyond which its own make room first", 1, 100),
};

// "weight=4".
absl::Status SetLimit(std::string_view word, TenantLimits& limits) {
  const std::string_view name = word.substr(0, word.find('='));
  const auto* row = std::ranges::find(kLimits, name, &LimitRow::name);
  if (row == std::end(kLimits) || name.size() == word.size()) {
    return InvalidArgument("a word behind the hash is no limit; there are, each with =NUMBER: ",
                           JoinNames(kLimits, [](const LimitRow& each) { return each.name; }));
  }
  int value = 0;
  if (!absl::SimpleAtoi(ToAbsl(word.substr(name.size() + 1)), &value) || value < row->least || value > row->most) {
    return InvalidArgument(row->name, " is no number from ", row->least, " to ", row->most);
  }
  row->set(limits, value);
  return absl::OkStatus();
}

absl::StatusOr<TenantLimits> ParseLimits(std::span<const std::string> words) {
  TenantLimits limits;
  for (size_t i = 0; i < words.size(); ++i) {
    MOED_RETURN_IF_ERROR(SetLimit(words[i], limits));
    const std::string name = words[i].substr(0, words[i].find('=') + 1);
    const bool twice = std::ranges::any_of(words.first(i), [&](const std::string& other) { return other.starts_with(name); });
    if (twice) return InvalidArgument("a limit is there twice");
  }
  return limits;
}

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

std::span<const LimitRow> TokenLimits() { return kLimits; }

TokenHash HashOfToken(std::string_view token) {
  TokenHash hash;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), hash.data());
  return hash;
}

std::string TokenLine::Text() const {
  std::string text = StrCat(name, " ", scopes.Text(), " ", absl::BytesToHexString(BytesOf(hash)));
  for (const LimitRow& row : kLimits) {
    if (const auto value = row.get(limits)) text += StrCat(" ", row.name, "=", *value);
  }
  return text;
}

absl::Status CheckTokenName(std::string_view name) {
  if (!name.empty() && name.size() <= kMostNameBytes && std::ranges::all_of(name, IsOfName)) return absl::OkStatus();
  return InvalidArgument("a name has 1 to ", kMostNameBytes, " letters, digits, '.', '_', '-' or '@'");
}

absl::StatusOr<TokenLine> ParseTokenLine(std::string_view line) {
  const std::vector<std::string> words = absl::StrSplit(ToAbsl(line), absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (words.size() < 3) return InvalidArgument(words.size(), " words; ", kForm);
  TokenLine token;
  MOED_RETURN_IF_ERROR(CheckTokenName(words[0]));
  token.name = words[0];
  MOED_ASSIGN_OR_RETURN(token.scopes, ScopeSet::Parse(words[1]));
  const bool is_hash = words[2].size() == 2 * token.hash.size() &&
                       std::ranges::all_of(words[2], [](unsigned char c) { return absl::ascii_isxdigit(c); });
  if (!is_hash) return InvalidArgument("the third word is no SHA-256 in ", 2 * token.hash.size(), " hexadecimal digits; ", kForm);
  std::ranges::copy(absl::HexStringToBytes(words[2]), token.hash.begin());
  MOED_ASSIGN_OR_RETURN(token.limits, ParseLimits(std::span(words).subspan(3)));
  return token;
}

absl::StatusOr<std::string> DrawToken() {
  TokenHash random;
  if (RAND_bytes(random.data(), static_cast<int>(random.size())) != 1) return Internal("OpenSSL has no random numbers");
  return StrCat("moed_", absl::BytesToHexString(BytesOf(random)));
}

}  // namespace moed
