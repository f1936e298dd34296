// Addresses that other machines reach, and what is asked for before one is listened on.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "core/base/address.h"
#include "server/wire/access.h"

namespace moed {

// INVALID_ARGUMENT, with the table of what to give, where other machines reach the address of `flag` and there is no TLS, or
// nothing that says who may come in: tokens, or authorities of clients' certificates. OK where `insecure` says that it is meant.
absl::Status CheckExposure(std::string_view flag, const Address& address, const AccessFiles& files, bool insecure);

// Logs a warning where only `insecure` lets the address be listened on.
void WarnOfExposure(std::string_view flag, const Address& address, const AccessFiles& files);

}  // namespace moed
