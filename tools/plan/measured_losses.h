// Losses that were measured, kept in a journal so that a planner that was interrupted does not measure them again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "core/store/journal.h"

namespace moed {

// Not synchronised.
class MeasuredLosses {
 public:
  // `identity`: of everything that a loss depends on but the configuration. A journal of another one is started over.
  static absl::StatusOr<MeasuredLosses> Open(const std::string& path, uint64_t identity);

  size_t size() const { return losses_.size(); }
  bool started_over() const { return started_over_; }  // there was a journal of another identity
  // `configuration`: the checksum of what was measured.
  std::optional<double> Find(uint64_t configuration) const;
  // Synced when it returns.
  absl::Status Add(uint64_t configuration, double loss);
  // Once it is not needed any more.
  absl::Status Remove();

 private:
  MeasuredLosses(std::string path, Journal journal) : path_(std::move(path)), journal_(std::move(journal)) {}

  std::string path_;
  Journal journal_;
  absl::flat_hash_map<uint64_t, double> losses_;
  bool started_over_ = false;
};

}  // namespace moed
