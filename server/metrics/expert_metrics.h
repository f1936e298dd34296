// The expert path's counters as Prometheus families.
#pragma once

#include <string>

#include "core/expert/stats.h"
#include "google/protobuf/repeated_field.h"
#include "server/process/metric_families.h"

namespace moed {

using FormatNames = google::protobuf::RepeatedPtrField<std::string>;  // [precision]

void AddExpertFamilies(const ExpertStats& stats, const FormatNames& formats, MetricFamilies& families);

}  // namespace moed
