#include <cstdio>

#include "client/command.h"
#include "core/base/status.h"

namespace moed {

CommandRun DefineDrain(CLI::App&) {
  return [](CommandContext& context) -> absl::Status {
    MOED_ASSIGN_OR_RETURN(const moe::v1::DrainResponse answer, context.client.Drain());
    std::printf("draining: %d running, %d waiting; the daemon stays until it is signalled\n", answer.running(), answer.waiting());
    return absl::OkStatus();
  };
}

}  // namespace moed
