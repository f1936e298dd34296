// HOBBIT, arXiv 2411.01433, 3.2 and 3.4: what is set offline for one model, from a file of moed-plan hobbit.
//   {"model_hash": "<16 hexadecimal digits>", "t1": <T1>, "t2": <T2>, "lru": <w_lru>, "lfu": <w_lfu>, "lhu": <w_lhu>,
//    "fld": <w_fld>, "high_cache": <share of the cache's bytes that is the high-precision cache>}
#pragma once

#include <any>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "core/expert/part_options.h"

namespace moed {

struct HobbitThresholds {
  double high = 1;  // T1
  double low = 1;   // T2
};

// Of the four terms of the eviction's priority; they sum to 1.
struct HobbitWeights {
  double lru = 0;
  double lfu = 0;
  double lhu = 0;
  double fld = 0;
};

// Of the eviction.
struct HobbitTuning {
  HobbitWeights weights;
  double high_cache = 0.95;  // of the cache's bytes, for the high precision
};

struct HobbitPlan {
  HobbitThresholds thresholds;
  HobbitTuning tuning;
};

// INVALID_ARGUMENT names the file: unreadable, no such JSON, of another model, a number out of range.
absl::StatusOr<HobbitPlan> ReadHobbitPlan(const std::string& path, uint64_t model_hash);
absl::StatusOr<std::any> ReadHobbitPlanFile(const std::string& path, const StoreReader& store);

inline constexpr OptionRow kHobbitPlanOption{.name = "hobbit-plan",
                                             .help =
                                                 "file of moed-plan hobbit: thresholds, the four weights and the share of the "
                                                 "high-precision cache, where they are not given",
                                             .source = "HOBBIT, arXiv 2411.01433, 3.2 and 3.4",
                                             .read = ReadHobbitPlanFile};

}  // namespace moed
