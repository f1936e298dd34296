// Tells whoever started this process that it serves, as systemd's Type=notify has it.
#pragma once

#include "absl/status/status.h"

namespace moed {

// "READY=1" to the datagram socket that the variable NOTIFY_SOCKET names; nothing where it is absent. Errors name the socket.
absl::Status SendReadyNotice();

}  // namespace moed
