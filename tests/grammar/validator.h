// Whether a JSON text is what a schema says: the keywords that grammars know, as JSON Schema 2020-12 defines them.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace moed::grammar {

bool IsValid(const nlohmann::ordered_json& schema, std::string_view text);

}  // namespace moed::grammar
