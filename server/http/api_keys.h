// Who may ask: keys from a file, one a line.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace moed::http {

// Of the keys only their SHA-256 is kept. Thread-safe once it is made.
class ApiKeys {
 public:
  ApiKeys() = default;  // everybody may ask

  // Lines that are empty or begin with # are no keys. INVALID_ARGUMENT where the file cannot be read, holds no key, or a key is
  // shorter than 16 characters or has others than printable ones of ASCII; it names the line, not the key.
  static absl::StatusOr<ApiKeys> Read(const std::string& path);

  // `authorization`: of a request, "Bearer KEY"; else `x_api_key`, of Anthropic's clients. In a time that does not depend on
  // which key it is like, or how much.
  bool Allows(std::string_view authorization, std::string_view x_api_key) const;

 private:
  bool Knows(std::string_view key) const;
  using Hash = std::array<uint8_t, 32>;
  static Hash HashOf(std::string_view key);

  std::vector<Hash> hashes_;
};

}  // namespace moed::http
