// One turn of one contender: a fresh daemon, prompts, and what its client and its counters saw.
#pragma once

#include "absl/status/statusor.h"
#include "bench/systems/cells.h"
#include "bench/systems/journal.h"
#include "bench/systems/setup.h"

namespace moed {

// FAILED_PRECONDITION when the contender cannot run here, with the daemon's reason. Figures (docs/systems.md says what each is):
//   decode_tokens_per_second prefill_tokens_per_second bytes_per_token stall_share disk_busy_share read_bytes_per_second
//   prefill_hit_ratio decode_hit_ratio lowered_per_token skipped_per_token masked_per_token gate_mass_lost joules_per_token
//   decode_tokens cache_share peak_resident_bytes exact
// and where the routing is recorded, with which prompts say nothing of prefill:
//   disk_bytes_per_second belady_hit_ratio bound_share
absl::StatusOr<Figures> MeasureTurn(const SystemsBench& bench, const Contender& contender, const Cell& cell, int turn);

// Serves other texts for `seconds` on the native disk and keeps what the contender learned, for its turns in cells of this share:
// learned_tokens learned_seconds. FAILED_PRECONDITION as above.
absl::StatusOr<Figures> Learn(const SystemsBench& bench, const Contender& contender, const Cell& cell, double seconds);

}  // namespace moed
