// The file of activation paths that policies and predictors are given.
#pragma once

#include <any>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/expert/learning/activation_paths.h"
#include "core/expert/part_context.h"
#include "core/expert/part_options.h"

namespace moed {

absl::StatusOr<std::any> ReadPathsFile(const std::string& path, const StoreReader& store);
uint64_t PathsFileBytes(const std::any& contents);

inline constexpr OptionRow kPathsOption{
    .name = "paths",
    .help = "file of activation paths made offline for this model; none: learned while serving",
    .source = "EdgeMoE, arXiv 2308.14352, III-C1",
    .read = ReadPathsFile,
    .file_bytes = PathsFileBytes};
inline constexpr const OptionRow* kPathsOptions[] = {&kPathsOption};

// Null where none were given. INVALID_ARGUMENT: paths of another shape.
absl::StatusOr<std::shared_ptr<const ActivationPaths>> GivenPaths(const ExpertModelShape& model, const PartOptions& options);

}  // namespace moed
