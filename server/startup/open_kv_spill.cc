#include "server/startup/open_kv_spill.h"

#include <utility>

#include "core/base/byte_size.h"
#include "core/base/status.h"
#include "core/io/nameless_file.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

absl::StatusOr<std::unique_ptr<KvSpill>> Open(const std::string& folder, const KvSpillSizes& sizes, KvPool& kv,
                                              const Clock& clock) {
  MOED_ASSIGN_OR_RETURN(std::shared_ptr<NamelessFile> file, OpenNamelessFile(folder));
  const auto report = [](const absl::Status& status) { spdlog::warn("--kv-spill: {}", StrCat(status.message())); };
  return KvSpill::Create(kv, sizes, std::move(file), clock, report);
}

}  // namespace

absl::Status CheckKvSpill(const std::string& folder, const ModelSpec& spec) {
  if (folder.empty()) return absl::OkStatus();
  if (spec.encoder) return InvalidArgument("--kv-spill: an encoder-decoder has no sessions");
  if (spec.prefix) return InvalidArgument("--kv-spill: a prefix-LM has no sessions");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<KvSpill>> OpenKvSpill(const std::string& folder, const KvSpillSizes& sizes, KvPool& kv,
                                                     const Clock& clock) {
  if (folder.empty()) return nullptr;
  auto spill = Open(folder, sizes, kv, clock);
  if (!spill.ok()) return Annotate(spill.status(), "--kv-spill");
  spdlog::info("keys and values of idle conversations may take {} of {}", FormatBytes(sizes.budget), folder);
  return spill;
}

}  // namespace moed
