// Whether the caller of a call may make it, by its metadata, before anything of its message is read.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/server_context.h"
#include "server/wire/tokens.h"

namespace moed {

// Of the metadata: `authorization: Bearer TOKEN`, or else `x-api-key: TOKEN`; "" where there is none, or several of a name.
std::string PresentedToken(const grpc::CallbackServerContext& context);

// The name of whose token it is; "" where there are no `tokens` (null), for then everybody may. Errors as Tokens::Check.
absl::StatusOr<std::string> Authorise(const Tokens* tokens, const grpc::CallbackServerContext& context, Scope scope);

}  // namespace moed
