#include "client/json_text.h"

#include <google/protobuf/util/json_util.h>

namespace moed {

std::string JsonText(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  (void)google::protobuf::util::MessageToJsonString(message, &json, options);  // cannot fail for our own messages
  return json;
}

}  // namespace moed
