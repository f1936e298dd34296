// The expert path's counters as Prometheus families.
#pragma once

#include <string>
#include <vector>

#include "core/expert/stats.h"
#include "server/process/metric_families.h"

namespace moed {

// `formats`: names by precision.
void AddExpertFamilies(const ExpertStats& stats, const std::vector<std::string>& formats, MetricFamilies& families);

}  // namespace moed
