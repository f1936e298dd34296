// Calls written as JSON: {"name": "f", "arguments": {...}}, or with "tool_name" or "parameters".
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/chat/answer/call_reader.h"
#include "core/chat/answer/json_scanner.h"
#include "core/chat/answer/markers.h"
#include "core/chat/answer/tool_schemas.h"

namespace moed::chat {

// One such object. Arguments that come before the name are held until it has come; other keys are skipped, "id" aside.
// So is "tool_call_id", which counts the calls of one answer: it names none within a conversation.
class JsonCall {
 public:
  // `known`: where given, only its tools are called. `brace_came`: the object's first byte is not put in again.
  explicit JsonCall(const ToolSchemas* known = nullptr, bool brace_came = false)
      : known_(known), at_(brace_came ? At::kFirstKey : At::kStart) {}
  CallState Put(char c, AnswerWriter& out);
  // It has the name of one of the known tools.
  bool NamesTool() const { return known_ != nullptr && known_->Has(name_); }

 private:
  enum class At : uint8_t { kStart, kFirstKey, kKey, kInKey, kColon, kBeforeValue, kInValue, kNext };
  enum class Role : uint8_t { kName, kArguments, kId, kOther };
  CallState Held(At next) {
    at_ = next;
    return CallState::kHeld;
  }
  CallState StartKey(char c);
  CallState InKey(char c);
  CallState StartValue(char c, AnswerWriter& out);
  CallState InValue(char c, AnswerWriter& out);
  CallState EndValue();
  CallState Next(char c, AnswerWriter& out);
  bool Begin(AnswerWriter& out);

  const ToolSchemas* known_;
  At at_;
  Role role_ = Role::kOther;
  JsonScanner scanner_;
  std::string token_;  // the key or the short value that is being read, as it stands
  std::string name_, id_, held_arguments_;
  bool begun_ = false;
  bool has_arguments_ = false;
};

// A list of them, one at least.
class JsonCallList {
 public:
  // `bracket_came`: the list's first byte is not put in again.
  explicit JsonCallList(const ToolSchemas* known = nullptr, bool bracket_came = false)
      : known_(known), at_(bracket_came ? At::kCall : At::kStart), call_(known) {}
  CallState Put(char c, AnswerWriter& out);

 private:
  enum class At : uint8_t { kStart, kCall, kAfterCall };

  const ToolSchemas* known_;
  At at_;
  JsonCall call_;
};

// The one that follows an opening marker, up to `close`.
std::unique_ptr<CallReader> MakeJsonCallReader(std::string_view close);
// The list that follows an opening marker, up to `close` where there is one.
std::unique_ptr<CallReader> MakeJsonListReader(std::string_view close);
// A whole answer that is one, or several, with semicolons between them or without; its brace has come. Of known tools only, since
// nothing marks it.
std::unique_ptr<CallReader> MakeBareJsonReader(ToolSchemas tools, bool brace_came);

}  // namespace moed::chat
