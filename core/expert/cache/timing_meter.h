// What a record's read and a layer's computation take, and how often a read serves once more; measured while serving.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/expert/expert_index.h"
#include "core/expert/fidelity/rule.h"

namespace moed {

// Running averages; fed with what happens, in nanoseconds of one clock. Not synchronised.
class TimingMeter {
 public:
  explicit TimingMeter(std::vector<uint64_t> record_bytes)
      : record_bytes_(std::move(record_bytes)), read_seconds_(record_bytes_.size()), last_read_(record_bytes_.size()) {}

  // The MoE layer at `position` begins; `stalled_nanos` = all waits so far.
  void OnLayer(int position, Phase phase, int64_t now_nanos, int64_t stalled_nanos);
  // Its experts are computed.
  void OnExpertsDone(int64_t now_nanos, int64_t stalled_nanos);
  // A record was read whole; `busy_nanos` = time with reads in flight since the beginning.
  void OnRecordRead(Precision precision, int64_t busy_nanos);
  // A record of the reference precision that was used once is used again, or leaves before.
  void OnUsedAgain(bool again);

  // A precision that was not read yet, or not for long, costs its bytes at the speed of those that were: what a rule avoids
  // because it was dear once gets cheaper with the disk.
  Prices prices(Phase phase) const;

 private:
  struct Averages {  // seconds; 0: not known yet
    double layer = 0;
    double experts = 0;
  };
  struct Moment {
    int position = 0;
    Phase phase = Phase::kPrefill;
    int64_t computed_nanos = 0;  // clock without the waits
  };
  bool Fresh(size_t precision) const;
  void Reprice();

  const std::vector<uint64_t> record_bytes_;
  std::vector<double> read_seconds_;  // [precision]
  std::vector<uint64_t> last_read_;   // [precision], in reads; 0: never
  uint64_t reads_ = 0;
  int64_t busy_nanos_ = 0;
  double reuse_ = 1;  // until something leaves
  int used_ = 0;      // records, as far as they are remembered
  std::array<Averages, kPhases> averages_{};
  std::optional<Moment> begun_;
};

}  // namespace moed
