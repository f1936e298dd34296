// SwapMoE, arXiv 2308.15030: how many virtual experts (slots) each layer has, from a file of moed-plan slots or in equal parts.
//   {"model_hash": "<16 hexadecimal digits>", "slots": [per MoE layer], "norms": [[per expert] per MoE layer]}
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace moed {

// Beside the slots: a replacement is read into it while the expert that it replaces is still used.
inline constexpr uint64_t kSpareSlots = 1;

struct SlotsPlan {
  std::vector<int> slots;    // by MoE layer, 1 to experts each
  std::vector<float> norms;  // (MoE layers, experts): Frobenius norm of each expert's matrices
};

// INVALID_ARGUMENT names the file: unreadable, no such JSON, of another model, of another shape, a number out of range.
absl::StatusOr<SlotsPlan> ReadSlotsPlan(const std::string& path, uint64_t model_hash, int layers, int experts);

// As equal as whole slots allow: the first layers have one more. RESOURCE_EXHAUSTED: less than one slot a layer.
absl::StatusOr<std::vector<int>> EqualSlots(int layers, int experts, uint64_t records);

// `records`: that the cache holds. RESOURCE_EXHAUSTED where the slots and the spare one are more, with what is allowed.
absl::Status CheckSlotsFit(const std::vector<int>& slots, uint64_t records, uint64_t record_bytes);

}  // namespace moed
