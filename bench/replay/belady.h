#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "bench/replay/routing_trace_reader.h"
#include "core/expert/policies/eviction_policy.h"

namespace moed {

// Evicts the expert whose next use is truly last (Belady's MIN without bypass): the bound for whoever reads on demand only. Knows
// what will be replayed: `traces` one after the other, `at_once` sequences in a step as ReplaySetup has it.
std::unique_ptr<EvictionPolicy> MakeBeladyPolicy(std::span<const RoutingTrace* const> traces, size_t at_once = 1);

}  // namespace moed
