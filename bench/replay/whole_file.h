// A file of a trace, plain or compressed.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace moed {

struct WholeFile {
  std::string path;  // that was read: PATH or PATH.xz
  std::string contents;
};

// PATH if it exists, else PATH.xz. NOT_FOUND naming both; DATA_LOSS for an xz stream that is damaged or ends early, with the
// offset.
absl::StatusOr<WholeFile> ReadPlainOrXz(const std::string& path);

}  // namespace moed
