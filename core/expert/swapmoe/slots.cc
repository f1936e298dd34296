#include "core/expert/swapmoe/slots.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/byte_size.h"
#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/expert/plan_reader.h"
#include "nlohmann/json.hpp"

namespace moed {
namespace {

struct SlotsFile {
  std::string model_hash;
  std::vector<int64_t> slots;
  std::vector<std::vector<float>> norms;
};

absl::StatusOr<SlotsFile> ParseSlots(const std::string& path) {
  MOED_ASSIGN_OR_RETURN(const std::string text, ReadPlanFile(path));
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    for (const nlohmann::json& slots : json.at("slots")) {
      if (!slots.is_number_integer()) return InvalidArgument("slots: ", ShownJson(slots), " is no whole number");
    }
    return SlotsFile{json.at("model_hash").get<std::string>(), json.at("slots").get<std::vector<int64_t>>(),
                     json.at("norms").get<std::vector<std::vector<float>>>()};
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument("not {\"model_hash\": ..., \"slots\": [...], \"norms\": [[...]]}: ", error.what());
  }
}

absl::Status CheckSlots(const SlotsFile& file, uint64_t model_hash, int layers, int experts) {
  MOED_RETURN_IF_ERROR(CheckPlanHash(file.model_hash, model_hash));
  if (file.slots.size() != static_cast<size_t>(layers) || file.norms.size() != static_cast<size_t>(layers)) {
    return InvalidArgument("slots of ", file.slots.size(), " and norms of ", file.norms.size(), " layers, the store has ", layers,
                           " with experts");
  }
  for (int layer = 0; layer < layers; ++layer) {
    if (file.slots[layer] < 1 || file.slots[layer] > experts) {
      return InvalidArgument("slots[", layer, "] is ", file.slots[layer], ", allowed are 1 to ", experts);
    }
    const std::vector<float>& norms = file.norms[layer];
    if (norms.size() != static_cast<size_t>(experts)) {
      return InvalidArgument("norms[", layer, "] has ", norms.size(), " experts, the store ", experts);
    }
    const auto bad = std::ranges::find_if(norms, [](float norm) { return !(norm >= 0 && std::isfinite(norm)); });
    if (bad != norms.end()) return InvalidArgument("norms[", layer, "][", bad - norms.begin(), "] is ", *bad, ", no norm");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SlotsPlan> ReadSlotsPlan(const std::string& path, uint64_t model_hash, int layers, int experts) {
  const absl::StatusOr<SlotsFile> file = ParseSlots(path);
  absl::Status status = file.status();
  if (status.ok()) status = CheckSlots(*file, model_hash, layers, experts);
  if (!status.ok()) return InvalidArgument("slots: ", path, ": ", status.message());
  SlotsPlan plan{{file->slots.begin(), file->slots.end()}, {}};
  for (const std::vector<float>& norms : file->norms) plan.norms.insert(plan.norms.end(), norms.begin(), norms.end());
  return plan;
}

absl::StatusOr<std::vector<int>> EqualSlots(int layers, int experts, uint64_t records) {
  const auto at_least_one_each = static_cast<uint64_t>(layers);
  if (records < at_least_one_each + kSpareSlots) {
    return ResourceExhausted("an expert cache of ", records, " records: one slot for each of ", layers,
                             " layers and a spare one need ", at_least_one_each + kSpareSlots, "; raise --memory-budget");
  }
  const uint64_t slots = records - kSpareSlots;
  std::vector<int> equal(at_least_one_each);
  for (uint64_t layer = 0; layer < equal.size(); ++layer) {
    const uint64_t here = slots / at_least_one_each + (layer < slots % at_least_one_each ? 1 : 0);
    equal[layer] = static_cast<int>(std::min<uint64_t>(here, static_cast<uint64_t>(experts)));
  }
  return equal;
}

absl::Status CheckSlotsFit(const std::vector<int>& slots, uint64_t records, uint64_t record_bytes) {
  const uint64_t needed = std::accumulate(slots.begin(), slots.end(), kSpareSlots);
  if (needed <= records) return absl::OkStatus();
  return ResourceExhausted("a plan of ", needed - kSpareSlots, " slots and a spare one is ", FormatBytes(needed * record_bytes),
                           " of experts; the memory budget leaves ", FormatBytes(records * record_bytes), ", so ",
                           records > kSpareSlots ? records - kSpareSlots : 0, " slots are allowed: plan with --budget ",
                           records * record_bytes, " or raise --memory-budget");
}

}  // namespace moed
