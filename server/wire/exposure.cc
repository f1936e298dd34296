#include "server/wire/exposure.h"

#include <string>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

constexpr const char* kRow = "  %-32s %-66s %s\n";

bool Encrypts(const AccessFiles& files) { return !files.tls.certificate.empty(); }
bool KnowsCallers(const AccessFiles& files) { return !files.tokens.empty() || !files.tls.client_ca.empty(); }

bool IsSafe(const Address& address, const AccessFiles& files) {
  return IsLocal(address) || (Encrypts(files) && KnowsCallers(files));
}

}  // namespace

absl::Status CheckExposure(std::string_view flag, const Address& address, const AccessFiles& files, bool insecure) {
  if (insecure || IsSafe(address, files)) return absl::OkStatus();
  const auto row = [](const char* given, const char* help, bool is_given) {
    return absl::StrFormat(kRow, given, help, is_given ? "given" : "missing");
  };
  return InvalidArgument(
      flag, " ", address.Text(), ": other machines reach it, and not all is given that protects it:\n",
      row("--tls-cert FILE --tls-key FILE", "nobody on the way reads or changes anything", Encrypts(files)),
      row("--tokens FILE", "who may do what; moectl token new NAME SCOPES makes its lines", !files.tokens.empty()),
      row("or --tls-client-ca FILE", "who may connect: clients with a certificate; they may do everything",
          !files.tls.client_ca.empty()),
      "Or listen on 127.0.0.1 or unix:PATH, or say by --insecure that everybody who reaches it may read and do everything.");
}

void WarnOfExposure(std::string_view flag, const Address& address, const AccessFiles& files) {
  if (IsSafe(address, files)) return;
  spdlog::warn(
      "{} {} is open to other machines (--insecure): {}{}", flag, address.Text(),
      Encrypts(files) ? "" : "all of it passes in plain text",
      KnowsCallers(files) ? "" : (Encrypts(files) ? "everybody may do everything" : ", and everybody may do everything"));
}

}  // namespace moed
