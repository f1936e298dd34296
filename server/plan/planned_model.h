// The model that `moed plan` plans for: a store, or what moed-pack would make one of.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "core/expert/presets/preset.h"
#include "core/machine/disk_read.h"
#include "core/model/spec.h"
#include "core/serving/serving_plan.h"
#include "core/store/description.h"

namespace moed {

struct PlannedModel {
  std::string path;  // as it was given
  bool packed = false;
  StoreDescription store;
  ModelSpec spec;
  uint64_t tokenizer_bytes = 0;
  uint64_t chat_template_bytes = 0;
  PresetNeeds preset;   // of the default one
  std::string weights;  // a file of it, to be read from
  FileBlocks records;   // of that file: experts of a store, or as large pieces

  // With the daemon's defaults on this machine.
  ServingInputs Inputs(uint64_t budget, const ServingOptions& options) const;
};

// A store. Errors as StoreReader::Open. What is not packed: dry_run.h.
absl::StatusOr<PlannedModel> OpenPlannedModel(const std::string& path);

}  // namespace moed
