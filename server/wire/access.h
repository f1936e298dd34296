// Who may connect, as files say that may be read anew while the program serves.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/wire/certificates.h"
#include "server/wire/tokens.h"

namespace moed {

struct AccessFiles {
  TlsFiles tls;
  std::string tokens;  // "" = everybody may do everything
};

// Thread-safe.
class Access {
 public:
  // Errors name flag and file.
  static absl::StatusOr<std::unique_ptr<Access>> Open(const AccessFiles& files);

  const Certificates* certificates() const { return certificates_.get(); }  // null: plain text
  const Tokens* tokens() const { return tokens_.get(); }                    // null: everybody may do everything
  // Reads all files anew, and logs what came of it: where one is wrong, what it said before goes on.
  void Reload();

 private:
  Access() = default;

  std::unique_ptr<Certificates> certificates_;
  std::unique_ptr<Tokens> tokens_;
};

}  // namespace moed
