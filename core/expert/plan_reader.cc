#include "core/expert/plan_reader.h"

#include "core/base/bounded_file.h"
#include "core/base/status.h"

namespace moed {

absl::StatusOr<std::string> ReadPlanFile(const std::string& path) {
  constexpr size_t kMostBytes = 64 << 20;
  return ReadBoundedFile(path, kMostBytes);
}

absl::Status CheckPlanHash(std::string_view found, uint64_t model_hash) {
  const std::string wanted = StrCat(absl::Hex(model_hash, absl::kZeroPad16));
  if (found == wanted) return absl::OkStatus();
  return InvalidArgument("made for the model ", found, ", the store holds ", wanted);
}

}  // namespace moed
