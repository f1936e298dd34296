// Messages of the protocol as the JSON that --json prints.
#pragma once

#include <google/protobuf/message.h>

#include <string>

namespace moed {

// Names as in the protocol. What is empty or zero is there, too, but not what is absent.
std::string JsonText(const google::protobuf::Message& message);

}  // namespace moed
