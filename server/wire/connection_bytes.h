// What connections have sent lately, and what of it no handler was given: every handler counts its message, once, whatever
// becomes of it. Clients of unix sockets have no names and one account together. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace moed {

// From here on what this connection sends is counted. Its descriptor may have been another's.
void CountConnection(int descriptor);
// It is ended, and sends no more.
void DropConnection(int descriptor);

// What was read of it. Of others than such connections nothing is known.
void CountReceived(int descriptor, uint64_t bytes);

// A whole message of `peer`, as gRPC names it. It pays for what its client has sent before, never for what is to come.
void CountTaken(std::string_view peer, size_t message_bytes);
// Of all such messages, without what their calls had beside them, which holds nothing once they are over.
uint64_t TakenBytes();

struct SentBytes {
  uint64_t all = 0;
  uint64_t untaken = 0;  // of them, by messages that are whole; at most
};
// Since ForgetSent() was called last but one.
SentBytes SentLately(int descriptor);
void ForgetSent();

}  // namespace moed
