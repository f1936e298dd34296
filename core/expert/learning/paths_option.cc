#include "core/expert/learning/paths_option.h"

#include <utility>

#include "core/base/status.h"
#include "core/store/store.h"

namespace moed {

absl::StatusOr<std::any> ReadPathsFile(const std::string& path, const StoreReader& store) {
  const StoreDescription& description = store.description();
  MOED_ASSIGN_OR_RETURN(auto paths,
                        ActivationPaths::Read(path, store.model_hash(), static_cast<int>(description.moe_layers.size()),
                                              description.experts_per_layer));
  return std::shared_ptr<const ActivationPaths>(std::move(paths));
}

uint64_t PathsFileBytes(const std::any& contents) {
  return std::any_cast<const std::shared_ptr<const ActivationPaths>&>(contents)->memory_bytes();
}

absl::StatusOr<std::shared_ptr<const ActivationPaths>> GivenPaths(const ExpertModelShape& model, const PartOptions& options) {
  auto paths = options.File<ActivationPaths>(kPathsOption);
  if (paths != nullptr &&
      (paths->layers() != static_cast<int>(model.moe_layers.size()) || paths->experts() != model.experts_per_layer)) {
    return InvalidArgument("activation paths of ", paths->layers(), " layers of ", paths->experts(), " experts: the model has ",
                           model.moe_layers.size(), " of ", model.experts_per_layer);
  }
  return paths;
}

}  // namespace moed
