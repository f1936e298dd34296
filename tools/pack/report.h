// What a store holds or will hold, as text and as JSON.
#pragma once

#include <cstdint>
#include <string>

#include "core/serving/serving_plan.h"
#include "core/store/store.h"
#include "tools/pack/checkpoint.h"
#include "tools/pack/packer.h"

namespace moed {

// Sizes by part; they add up to the file's size exactly.
std::string SizeTable(const StoreDescription& description, const FileLayout& layout);

// What requantising lost, a line for the trunk and for each precision; "" when nothing was.
std::string ErrorTable(const StoreDescription& description, const EncodingErrors& errors);

std::string InspectText(const StoreReader& store);
std::string InspectJson(const StoreReader& store);  // one object, indented, with a newline

// What a dry run found out beside the plan.
struct DryRunFigures {
  ServingBudgets budgets;
  double encoding_seconds = 0;
  std::string free_space;  // what is wrong with it; "": nothing
};
// As InspectJson of the store that the plan makes, as far as it is known before.
std::string DryRunJson(const Checkpoint& checkpoint, const PackPlan& plan, const DryRunFigures& figures);

}  // namespace moed
