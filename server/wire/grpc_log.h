// What gRPC itself has to say, in the log as everything else is.
#pragma once

namespace moed {

// gRPC's lines go to the program's log from here on, as its own and as its level says. Strangers cause them (a line for each
// handshake of TLS that fails), so there are ten a second at most, and the next one says how many were left out. Call it once,
// before anything listens. GRPC_VERBOSITY says which lines there are [those about errors].
void TakeGrpcLog();

}  // namespace moed
