// Objects whose "type" says which members they have: parts of contents, blocks, items.
#pragma once

#include <span>
#include <string_view>
#include <type_traits>

#include "core/base/status.h"
#include "server/http/api/parameters.h"

namespace moed::http {

template <class Draft>
struct TypedObject {
  std::string_view type;
  std::span<const Parameter<Draft>> members;  // "type" among them
  std::span<const std::string_view> needed;
};

// `type`: what the object says, or what it is taken for. Looked at first, since members of what is not understood say nothing.
template <class Draft>
absl::Status ReadTyped(const Json& object, const Json& type, std::span<const std::type_identity_t<TypedObject<Draft>>> rows,
                       Draft& draft) {
  if (!object.is_object()) return InvalidArgument(ShownJson(object), " is no object");
  for (const TypedObject<Draft>& row : rows) {
    if (type != row.type) continue;
    for (const std::string_view needed : row.needed) {
      if (!HasMember(object, needed)) return InvalidArgument(".", needed, ": missing");
    }
    return ReadMembers(object, row.members, draft);
  }
  const std::string understood = JoinNames(rows, [](const TypedObject<Draft>& row) { return row.type; });
  if (type.is_null()) return InvalidArgument(".type: missing; understood are: ", understood);
  return InvalidArgument(".type: ", ShownJson(type), " is not understood; understood are: ", understood);
}

template <class Draft>
absl::Status ReadTyped(const Json& object, std::span<const std::type_identity_t<TypedObject<Draft>>> rows, Draft& draft) {
  return ReadTyped(object, object.is_object() ? object.value("type", Json()) : Json(), rows, draft);
}

}  // namespace moed::http
