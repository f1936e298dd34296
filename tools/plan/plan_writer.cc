#include "tools/plan/plan_writer.h"

#include <cerrno>
#include <cstdio>
#include <fstream>

#include "core/base/status.h"

namespace moed {

absl::Status WritePlanFile(const std::string& path, const nlohmann::ordered_json& json) {
  const std::string partial = path + ".partial";
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  file << json.dump() << "\n";
  file.close();
  if (!file) return ErrnoError(errno, "cannot write ", partial);
  if (std::rename(partial.c_str(), path.c_str()) != 0) return ErrnoError(errno, "cannot rename ", partial);
  return absl::OkStatus();
}

}  // namespace moed
