#include "tools/plan/plan_writer.h"

#include <span>

#include "core/store/file_write.h"

namespace moed {

absl::Status WritePlanFile(const std::string& path, const nlohmann::ordered_json& json) {
  const std::string text = json.dump() + "\n";
  return ReplaceFile(path,
                     [&](int fd, const std::string& partial) { return WriteAt(fd, partial, 0, std::as_bytes(std::span(text))); });
}

}  // namespace moed
