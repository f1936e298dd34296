// The file that a slots plan ends in. "model_hash", "slots" and "norms" are what the presets of SwapMoE read
// (core/expert/swapmoe/slots.h); the rest is the report.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "core/store/store.h"
#include "tools/plan/swapmoe_accuracy.h"
#include "tools/plan/swapmoe_profile.h"

namespace moed {

struct SlotsReport {
  MeasuredSlots plan;
  std::string_view found_by;  // "search", "equal slots", "random slots"
  MeasuredSlots equal;        // as many slots, in equal parts
  double all_nats = 0;        // with every expert
  double predicted_nats = 0;  // of the plan
  double rank_correlation = 0;
  int fitted = 0;    // allocations that the model was fitted to at first
  int held_out = 0;  // that its rank correlation is of
  uint64_t budget_bytes = 0;
  int scored_tokens = 0;
  int window = 0;  // tokens between two choices
  int top_k = 0;
  ExpertProfile profile;
};

// Seconds of one answer token's experts: of each layer min(k, slots) are computed.
double ComputeSeconds(const SlotCounts& slots, int top_k, const ExpertProfile& profile);

// Whole or not at all.
absl::Status WriteSlotsFile(const std::string& path, const StoreReader& store, const SlotsReport& report,
                            const std::vector<float>& norms);

}  // namespace moed
