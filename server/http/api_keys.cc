#include "server/http/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <fstream>

#include "core/base/status.h"

namespace moed::http {
namespace {

constexpr size_t kLeastKeyBytes = 16;
constexpr std::string_view kBearer = "Bearer ";

bool IsPrintable(char c) { return c > ' ' && c <= '~'; }

}  // namespace

ApiKeys::Hash ApiKeys::HashOf(std::string_view key) {
  Hash hash;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), hash.data());
  return hash;
}

absl::StatusOr<ApiKeys> ApiKeys::Read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return InvalidArgument("--api-keys: cannot read '", path, "'");
  ApiKeys keys;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line[0] == '#') continue;
    if (line.size() < kLeastKeyBytes || !std::ranges::all_of(line, IsPrintable)) {
      return InvalidArgument("--api-keys: line ", number, " of '", path, "' is no key: at least ", kLeastKeyBytes,
                             " printable characters without spaces are");
    }
    keys.hashes_.push_back(HashOf(line));
  }
  if (keys.hashes_.empty()) return InvalidArgument("--api-keys: '", path, "' holds no key");
  return keys;
}

bool ApiKeys::Allows(std::string_view authorization, std::string_view x_api_key) const {
  if (hashes_.empty()) return true;
  if (authorization.starts_with(kBearer)) return Knows(authorization.substr(kBearer.size()));
  return Knows(x_api_key);
}

bool ApiKeys::Knows(std::string_view key) const {
  const Hash hash = HashOf(key);
  bool found = false;
  for (const Hash& known : hashes_) found |= CRYPTO_memcmp(known.data(), hash.data(), hash.size()) == 0;
  return found;
}

}  // namespace moed::http
