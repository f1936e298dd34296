// For errors about a store that lacks something: the command that makes one that has it.
#pragma once

#include <string>
#include <string_view>

#include "core/store/store.h"

namespace moed {

// moed-pack with these --expert-formats, in the place of `store`.
std::string PackCommand(const StoreReader& store, std::string_view formats);
std::string FormatsOf(const StoreReader& store);           // for a store like this one
std::string FormatsWithOneMore(const StoreReader& store);  // with one more precision

}  // namespace moed
