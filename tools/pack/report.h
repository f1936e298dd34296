// What a store holds or will hold, as text and as JSON.
#pragma once

#include <cstdint>
#include <string>

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

}  // namespace moed
