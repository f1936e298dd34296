// The MODEL of a command line: what it is, and how to tell that it has changed.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace moed {

struct ModelSource {
  std::string path;  // as it was given
  bool is_store = false;
  // Of what has to be packed:
  std::string canonical;    // absolute; of a split GGUF file its first part
  std::string fingerprint;  // names, sizes, times and samples of the files that it consists of
};

// INVALID_ARGUMENT says what was found and what is allowed.
absl::StatusOr<ModelSource> ExamineModel(const std::string& path);
// `file` is packed with it, too. Errors name it.
absl::Status AddFile(const std::string& file, ModelSource& source);

}  // namespace moed
