// The items of an input, as the daemon's messages.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "moe/v1/inference.pb.h"
#include "server/http/json/bounded_json.h"

namespace moed::http {

// Messages, and where each stands in the request: one may be made of several items.
class Input {
 public:
  // A string, or a list of items. What an assistant says, thinks and calls one after the other is one message, and so are the
  // first messages where they are the system's. Errors begin with the place: "[3].content[0].type: ...".
  absl::Status Read(const Json& input);
  // Before all that is read, as the system's.
  void Instruct(std::string instructions);

  bool empty() const { return messages_.empty(); }
  google::protobuf::RepeatedPtrField<moe::v1::ChatMessage> TakeMessages() { return std::exchange(messages_, {}); }

  // Of a field of the messages, also when they are taken: "messages[3].tool_calls[0].arguments" may be "input[5].arguments". ""
  // for any other.
  std::string PlaceOf(std::string_view path) const;

 private:
  class Reader;
  static constexpr int kNoItem = -1;
  struct Place {
    int item = kNoItem;      // the first that it is made of
    bool of_tool = false;    // it is the result of one
    std::vector<int> calls;  // the item of each
  };

  google::protobuf::RepeatedPtrField<moe::v1::ChatMessage> messages_;
  std::vector<Place> places_;  // of messages_
  bool instructed_ = false;
};

}  // namespace moed::http
