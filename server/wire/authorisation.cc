#include "server/wire/authorisation.h"

#include <iterator>
#include <string_view>

namespace moed {
namespace {

std::string_view OnlyValue(const grpc::CallbackServerContext& context, const char* name) {
  const auto [begin, end] = context.client_metadata().equal_range(name);
  if (begin == end || std::next(begin) != end) return "";
  return {begin->second.data(), begin->second.size()};
}

}  // namespace

std::string PresentedToken(const grpc::CallbackServerContext& context) {
  return TokenOf(OnlyValue(context, "authorization"), OnlyValue(context, "x-api-key"));
}

absl::StatusOr<std::string> Authorise(const Tokens* tokens, const grpc::CallbackServerContext& context, Scope scope) {
  if (tokens == nullptr) return "";
  return tokens->Check(PresentedToken(context), scope);
}

}  // namespace moed
