// A GGUF model: one file, or all parts of a split one.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/pack/gguf/gguf_file.h"

namespace moed {

struct GgufModel {
  std::vector<std::shared_ptr<const RandomAccessFile>> files;  // in the order of the parts
  GgufMetadata metadata;                                       // the first part's
  std::map<std::string, GgufTensor, std::less<>> tensors;      // of all parts, by name

  const std::string& path() const { return files.front()->path(); }
  const GgufTensor* Find(std::string_view name) const;  // null when absent
};

// `path` is that of the file, or of any part: "NAME-00002-of-00003.gguf" beside the others. NOT_FOUND naming the part that is
// not there; INVALID_ARGUMENT as ReadGguf, and for parts that do not belong together.
absl::StatusOr<GgufModel> OpenGguf(const std::string& path);

}  // namespace moed
