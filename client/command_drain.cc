#include <cstdio>

#include "client/command.h"
#include "core/base/status.h"

namespace moed {

CommandRun DefineDrain(CLI::App&) {
  return [](CommandContext& context) -> absl::Status {
    MOED_ASSIGN_OR_RETURN(const moe::v1::DrainResponse answer, context.client.Drain());
    std::printf("draining: %d running, %d waiting; the daemon stays until it is signalled, moectl undrain takes it back\n",
                answer.running(), answer.waiting());
    return absl::OkStatus();
  };
}

CommandRun DefineUndrain(CLI::App&) {
  return [](CommandContext& context) -> absl::Status {
    MOED_RETURN_IF_ERROR(context.client.Undrain());
    std::printf("requests are taken again\n");
    return absl::OkStatus();
  };
}

}  // namespace moed
