#include "client/conversation.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "client/command.h"
#include "core/base/json_value.h"
#include "core/base/status.h"

namespace moed {
namespace {

using nlohmann::json;

constexpr const char* kReasoning = "reasoning_content";

json ToJson(const moe::v1::ChatMessage& message) {
  std::string text;
  for (const auto& part : message.content()) text += part.text();
  json out = {{"role", message.role()}, {"content", text}};
  if (!message.reasoning().empty()) out[kReasoning] = message.reasoning();
  return out;
}

absl::Status FromJson(const json& given, ChatMessages& messages) {
  if (!given.is_object()) return InvalidArgument("is ", ShownJson(given), ", no object");
  moe::v1::ChatMessage message;
  for (const auto& [key, value] : given.items()) {
    if (!value.is_string()) return InvalidArgument(key, " is ", ShownJson(value), ", no text");
    const auto& text = value.get_ref<const std::string&>();
    if (key == "role") {
      message.set_role(text);
    } else if (key == "content") {
      message.add_content()->set_text(text);
    } else if (key == kReasoning) {
      message.set_reasoning(text);
    } else {
      return InvalidArgument("has \"", key, "\"; known are role, content and ", kReasoning);
    }
  }
  if (message.role().empty()) return InvalidArgument("has no role");
  *messages.Add() = std::move(message);
  return absl::OkStatus();
}

absl::Status CannotWrite(const std::string& path) { return absl::ErrnoToStatus(errno, StrCat("cannot write '", path, "'")); }

}  // namespace

void AddMessage(ChatMessages& messages, const std::string& role, const std::string& text) {
  moe::v1::ChatMessage& message = *messages.Add();
  message.set_role(role);
  message.add_content()->set_text(text);
}

absl::Status SaveConversation(const std::string& path, const ChatMessages& messages) {
  json list = json::array();
  for (const auto& message : messages) list.push_back(ToJson(message));
  const std::string text = json{{"messages", list}}.dump(2, ' ', false, json::error_handler_t::replace);
  const std::string unfinished = path + ".unfinished";
  std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
  file << text << '\n';
  file.close();
  if (!file || std::rename(unfinished.c_str(), path.c_str()) != 0) {
    const absl::Status status = CannotWrite(path);
    std::remove(unfinished.c_str());
    return status;
  }
  return absl::OkStatus();
}

absl::Status LoadConversation(const std::string& path, ChatMessages& messages) {
  MOED_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  const json given = json::parse(text, nullptr, false);
  if (!given.is_object() || given.size() != 1 || !given.contains("messages") || !given["messages"].is_array()) {
    return InvalidArgument(path, ": expected {\"messages\": [...]}");
  }
  ChatMessages read;
  for (const json& message : given["messages"]) {
    const absl::Status status = FromJson(message, read);
    if (!status.ok()) return Annotate(status, StrCat(path, ": messages[", read.size(), "]"));
  }
  messages = std::move(read);
  return absl::OkStatus();
}

}  // namespace moed
