#include "bench/replay/empty_store.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "core/base/status.h"
#include "core/store/layout.h"
#include "core/store/writer.h"

namespace moed {
namespace {

// As small as an expert gets.
StoreDescription EmptyDescription(const RoutingShape& shape) {
  StoreDescription description;
  description.model_spec = "{}";
  description.moe_layers = shape.layers;
  description.experts_per_layer = shape.experts;
  description.precisions = {
      LayOutExperts(FormatId::kF32, {MatrixShape{1, 1}, MatrixShape{1, 1}, MatrixShape{1, 1}}, shape.layers.size())};
  description.trunk = {{.name = "none", .format = FormatId::kF32, .vector = true, .rows = 1, .cols = 1}};
  LayOutTrunk(description);
  description.tokenizer = "none";
  return description;
}

absl::Status Write(const std::string& path, const StoreDescription& description) {
  constexpr uint64_t kNever = UINT64_MAX;
  MOED_ASSIGN_OR_RETURN(const auto writer, StoreWriter::Open(path, description, {.sync_bytes = kNever, .sync_seconds = 1e9}));
  MOED_RETURN_IF_ERROR(writer->AppendTensor(0, std::vector<std::byte>(description.trunk[0].bytes)));
  for (const LayerId layer : description.moe_layers) {
    for (int expert = 0; expert < description.experts_per_layer; ++expert) {
      for (const ExpertSegment& segment : description.precisions[0].layers[0].segments) {
        MOED_RETURN_IF_ERROR(writer->AppendExpert({layer, expert}, segment.part, std::vector<std::byte>(segment.bytes)));
      }
    }
  }
  return writer->Finish();
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoreReader>> MakeEmptyStore(const RoutingShape& shape) {
  std::string folder = (std::filesystem::temp_directory_path() / "moe-bench-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return FailedPrecondition("cannot make a temporary folder like ", folder);
  const absl::Cleanup remove = [&folder] {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  };
  const std::string path = folder + "/empty.moed";
  MOED_RETURN_IF_ERROR(Write(path, EmptyDescription(shape)));
  return StoreReader::Open(path);
}

}  // namespace moed
