#include "tools/plan/plan_output.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "core/base/status.h"
#include "core/base/version.h"
#include "core/store/checksum.h"

namespace moed {

void PlanOutput::Define(CLI::App& command, std::string_view suffix) {
  suffix_ = suffix;
  command.add_option("--out", path, StrCat("the file to write (default: STORE", suffix, ")"))->option_text("FILE");
  command.add_flag("--force", force, "replace the file if it exists");
}

absl::Status PlanOutput::Choose(const std::string& store) {
  if (path.empty()) path = store + suffix_;
  absl::StatusOr<FileLock> lock = FileLock::Take(path + ".lock");
  if (absl::IsUnavailable(lock.status())) return absl::UnavailableError(StrCat("another process is making ", path));
  MOED_RETURN_IF_ERROR(lock.status());
  lock_.emplace(*std::move(lock));
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !force) {
    return absl::AlreadyExistsError(StrCat(path, " exists already; --force replaces it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<MeasuredLosses> PlanOutput::OpenLosses(const LossEvaluator& evaluator, std::string_view settings) const {
  const uint64_t identity = Checksum(
      StrCat(Version(), "\n", suffix_, "\n", evaluator.store().model_hash(), "\n", evaluator.tokens_hash(), "\n", settings));
  MOED_ASSIGN_OR_RETURN(MeasuredLosses losses, MeasuredLosses::Open(journal(), identity));
  if (losses.size() > 0) {
    std::fprintf(stderr, "resuming %s: %zu measurements are already there\n", journal().c_str(), losses.size());
  }
  if (losses.started_over()) {
    std::fprintf(stderr, "starting over: %s was left by another store, text, setting or version\n", journal().c_str());
  }
  return losses;
}

absl::Status PlanOutput::Kept(const absl::Status& status) const {
  return absl::Status(status.code(), StrCat(status.message(), "; what was measured is kept in ", journal(),
                                            ": run the same command again to resume"));
}

}  // namespace moed
