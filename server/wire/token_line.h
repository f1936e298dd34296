// Tokens that callers present, and the lines of the file by which servers know them: NAME SCOPES SHA256-HEX [LIMIT=NUMBER]...
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/base/tenant_limits.h"

namespace moed {

// What a caller may do.
enum class Scope : uint8_t { kInfer, kObserve, kControl };
struct ScopeRow {
  Scope scope;
  std::string_view name;
  std::string_view help;
};
std::span<const ScopeRow> Scopes();
std::string_view ScopeName(Scope scope);

class ScopeSet {
 public:
  // "infer,observe". INVALID_ARGUMENT lists the scopes that there are.
  static absl::StatusOr<ScopeSet> Parse(std::string_view text);
  void Add(Scope scope) { bits_ |= 1U << static_cast<unsigned>(scope); }
  bool Has(Scope scope) const { return (bits_ >> static_cast<unsigned>(scope) & 1U) != 0; }
  std::string Text() const;  // in the order of Scopes()

 private:
  unsigned bits_ = 0;
};

// What a line may say of its name's share, "weight=4". What it does not say is not limited.
struct LimitRow {
  std::string_view name;
  std::string_view help;
  int least;
  int most;
  std::optional<int> (*get)(const TenantLimits& limits);  // absent: as if it were not said
  void (*set)(TenantLimits& limits, int value);
};
std::span<const LimitRow> TokenLimits();

using TokenHash = std::array<uint8_t, 32>;  // SHA-256 of a token's bytes
TokenHash HashOfToken(std::string_view token);

struct TokenLine {
  std::string name;  // of who has the token, for logs: 1 to 64 letters, digits, '.', '_', '-', '@'
  ScopeSet scopes;
  TokenHash hash{};
  TenantLimits limits;

  std::string Text() const;
};
// INVALID_ARGUMENT says what is wrong and what a line is like. It never repeats the third word or what follows it, which may be a
// token by mistake.
absl::StatusOr<TokenLine> ParseTokenLine(std::string_view line);
absl::Status CheckTokenName(std::string_view name);

// "moed_" and 256 bits drawn by OpenSSL as hexadecimal digits.
absl::StatusOr<std::string> DrawToken();

}  // namespace moed
