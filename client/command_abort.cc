#include <memory>
#include <string>

#include "client/command.h"

namespace moed {

CommandRun DefineAbort(CLI::App& app) {
  auto id = std::make_shared<std::string>();
  app.add_option("id", *id, "its request_id (generate --request-id); NAME/ID where several tokens' requests have the same")
      ->required();
  return [id](CommandContext& context) { return context.client.Abort(*id); };
}

}  // namespace moed
