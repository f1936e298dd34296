// What it takes to read the experts that a prompt needs and that are not in memory.
#pragma once

#include <cstdint>
#include <optional>

#include "core/expert/stats.h"

namespace moed {

struct ColdModel {
  uint64_t expert_bytes = 0;  // of all experts, at the reference precision
  int experts = 0;            // of a layer
  int top_k = 0;              // of them, those that a token is routed to
  double stored_share = 1;    // of their bytes, those that are read
};

// Seconds, at the bandwidth that `stats` measured while experts were read. Of a layer's experts a prompt of so many tokens meets
// 1 - (1 - top_k / experts)^tokens if all are as likely; of these all are in memory that can be. Absent: less than a tenth of
// a second of reading was measured, or there are no experts.
std::optional<double> ColdSeconds(const ColdModel& model, const ExpertStats& stats, int tokens);

}  // namespace moed
