// The items that an answer is made of.
#pragma once

#include <string>
#include <string_view>

#include "server/http/json/bounded_json.h"

namespace moed::http {

struct OutputItem {
  enum class Kind { kReasoning, kMessage, kCall };
  Kind kind = Kind::kMessage;
  std::string id;
  std::string text;           // of a call: its arguments
  std::string call_id, name;  // of a call
  Json logprobs = Json::array();
};

// "rs_...", "msg_..." or "fc_...": of the item with this number in the answer `response_id`.
std::string OutputItemId(OutputItem::Kind kind, std::string_view response_id, size_t number);

inline constexpr std::string_view kInProgress = "in_progress";  // nothing of its text is shown yet
inline constexpr std::string_view kCompleted = "completed";
inline constexpr std::string_view kIncomplete = "incomplete";
Json OutputItemJson(const OutputItem& item, std::string_view status);

// Calls have no parts.
Json OutputPartJson(const OutputItem& item);

}  // namespace moed::http
