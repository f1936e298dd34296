#include "tools/plan/measured_losses.h"

#include <bit>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "core/base/status.h"

namespace moed {

absl::StatusOr<MeasuredLosses> MeasuredLosses::Open(const std::string& path, uint64_t identity) {
  MOED_ASSIGN_OR_RETURN(const std::optional<JournalContents> found, Journal::Read(path));
  JournalContents contents{identity, {}};
  const bool other = found.has_value() && found->identity != identity;
  if (found.has_value() && !other) contents.entries = found->entries;
  MOED_ASSIGN_OR_RETURN(Journal journal, Journal::Create(path, contents));
  MeasuredLosses losses(path, std::move(journal));
  for (const JournalEntry& entry : contents.entries) losses.losses_[entry.piece] = std::bit_cast<double>(entry.checksum);
  losses.started_over_ = other;
  return losses;
}

std::optional<double> MeasuredLosses::Find(uint64_t configuration) const {
  const auto at = losses_.find(configuration);
  if (at == losses_.end()) return std::nullopt;
  return at->second;
}

absl::Status MeasuredLosses::Add(uint64_t configuration, double loss) {
  losses_[configuration] = loss;
  return journal_.Append({{configuration, std::bit_cast<uint64_t>(loss)}});
}

absl::Status MeasuredLosses::Remove() {
  if (std::remove(path_.c_str()) != 0) return ErrnoError(errno, "cannot remove ", path_);
  return absl::OkStatus();
}

}  // namespace moed
