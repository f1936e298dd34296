#include "tools/pack/json_text.h"

#include <set>
#include <utility>
#include <vector>

#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/io/file.h"

namespace moed {

absl::StatusOr<nlohmann::json> ParseJsonObject(const std::string& name, std::string_view text) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  std::string duplicate;
  const auto watch = [&](int, Event event, nlohmann::json& parsed) {
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second) duplicate = parsed.get<std::string>();
    return true;
  };
  if (IsDeepJson(text)) return InvalidArgument(name, ": arrays and objects are nested more than ", kMostJsonDepth, " deep");
  try {
    nlohmann::json object = nlohmann::json::parse(text.begin(), text.end(), watch);
    if (!duplicate.empty()) return InvalidArgument(name, ": \"", duplicate, "\" appears twice");
    if (!object.is_object()) return InvalidArgument(name, ": expected a JSON object, found ", object.type_name());
    return object;
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument(name, ": not valid JSON: ", error.what());
  }
}

absl::StatusOr<std::string> ReadText(const std::string& path, uint64_t max_bytes) {
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file, OpenBuffered(path));
  if (file->size() > max_bytes) {
    return InvalidArgument(path, " has ", file->size(), " bytes, expected at most ", max_bytes);
  }
  std::string text(file->size(), '\0');
  MOED_RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace moed
