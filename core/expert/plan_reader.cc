#include "core/expert/plan_reader.h"

#include <fstream>
#include <sstream>

#include "core/base/status.h"

namespace moed {

absl::StatusOr<std::string> ReadPlanFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return InvalidArgument("cannot be read");
  return text.str();
}

absl::Status CheckPlanHash(std::string_view found, uint64_t model_hash) {
  const std::string wanted = StrCat(absl::Hex(model_hash, absl::kZeroPad16));
  if (found == wanted) return absl::OkStatus();
  return InvalidArgument("made for the model ", found, ", the store holds ", wanted);
}

}  // namespace moed
