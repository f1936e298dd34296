// Variants of a good JSON text, for the tests of what reads it: every value in it, the whole first, replaced by each hostile one,
// and every member of an object left out.
#pragma once

#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace moed {

inline const std::vector<std::string>& HostileValues() {
  static const std::vector<std::string> values = {
      "-1", "-0.0", "0", "1", "0.5", "2.5", "1e-300", "1e300", "-1e300", "1e999", "NaN", "Infinity", "2147483647", "2147483648",
      "4294967296", "4294967297", "9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616",
      "-9223372036854775808", "-9223372036854775809", "null", "true", "\"\"", "\"1\"", "\"\\u0000\\ud83d\\ude00\"", "\"\xff\"",
      "[]", "{}", "[[1]]", "[1,2,3,4,5,6,7,8,9]", "{\"a\":[0]}",
      // Deeper than what works its way down by calling itself can go.
      std::string(300'000, '[') + std::string(300'000, ']')};
  return values;
}

// `visit` gets the text and what it is.
template <class Visit>
void ForEachHostileValue(const std::string& good, Visit visit) {
  using Json = nlohmann::ordered_json;
  static constexpr const char* kHere = "the value to be replaced";
  const Json json = Json::parse(good);
  std::vector<Json::json_pointer> places = {Json::json_pointer()};
  for (size_t i = 0; i < places.size(); ++i) {
    const Json& at = json[places[i]];
    if (!at.is_structured()) continue;
    for (const auto& [key, value] : at.items()) places.push_back(at.is_array() ? places[i] / std::stoul(key) : places[i] / key);
  }
  for (const Json::json_pointer& place : places) {
    Json marked = json;
    marked[place] = kHere;
    const std::string text = marked.dump();
    const std::string here = Json(kHere).dump();
    for (const std::string& value : HostileValues()) {
      std::string damaged = text;
      damaged.replace(damaged.find(here), here.size(), value);
      visit(damaged, place.to_string() + " is " + value.substr(0, 40));
    }
    if (place.empty() || !json[place.parent_pointer()].is_object()) continue;
    marked[place.parent_pointer()].erase(place.back());
    visit(marked.dump(), place.to_string() + " is missing");
  }
}

}  // namespace moed
