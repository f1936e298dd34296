#include "server/wire/access.h"

#include "core/base/status.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

void LogReload(const absl::Status& status, const char* what) {
  if (status.ok()) {
    spdlog::info("SIGHUP: {} read anew", what);
  } else {
    spdlog::error("SIGHUP: {} not read anew, those from before go on: {}", what, std::string(status.message()));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Access>> Access::Open(const AccessFiles& files) {
  std::unique_ptr<Access> access(new Access);
  MOED_RETURN_IF_ERROR(CheckTlsFiles(files.tls));
  if (!files.tls.certificate.empty()) {
    MOED_ASSIGN_OR_RETURN(access->certificates_, Certificates::Read(files.tls));
  }
  if (!files.tokens.empty()) {
    MOED_ASSIGN_OR_RETURN(access->tokens_, Tokens::Read(files.tokens));
  }
  return access;
}

void Access::Reload() {
  if (certificates_ == nullptr && tokens_ == nullptr)
    spdlog::info("SIGHUP: there is nothing to read anew (no --tls-cert, no --tokens)");
  if (certificates_ != nullptr) LogReload(certificates_->Reload(), "certificates");
  if (tokens_ != nullptr) LogReload(tokens_->Reload(), "tokens");
}

}  // namespace moed
