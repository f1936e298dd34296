#include "server/http/responses/output.h"

#include "core/base/status.h"

namespace moed::http {
namespace {

using Kind = OutputItem::Kind;

std::string_view Prefix(Kind kind) {
  switch (kind) {
    case Kind::kReasoning:
      return "rs_";
    case Kind::kMessage:
      return "msg_";
    case Kind::kCall:
      return "fc_";
  }
  return "";
}

}  // namespace

std::string OutputItemId(Kind kind, std::string_view response_id, size_t number) {
  return StrCat(Prefix(kind), response_id.substr(response_id.find('_') + 1), "_", number);
}

Json OutputItemJson(const OutputItem& item, std::string_view status) {
  const bool begins = status == kInProgress;
  const Json content = begins || item.kind == Kind::kCall ? Json::array() : Json::array({OutputPartJson(item)});
  switch (item.kind) {
    case Kind::kReasoning:
      return {{"id", item.id}, {"type", "reasoning"}, {"summary", Json::array()}, {"content", content}, {"status", status}};
    case Kind::kMessage:
      return {{"id", item.id}, {"type", "message"}, {"status", status}, {"role", "assistant"}, {"content", content}};
    case Kind::kCall:
      return {{"id", item.id},           {"type", "function_call"}, {"status", status},
              {"call_id", item.call_id}, {"name", item.name},       {"arguments", begins ? "" : item.text}};
  }
  return nullptr;
}

Json OutputPartJson(const OutputItem& item) {
  if (item.kind == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", item.text}};
  return {{"type", "output_text"}, {"text", item.text}, {"annotations", Json::array()}, {"logprobs", item.logprobs}};
}

}  // namespace moed::http
