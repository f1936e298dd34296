// Metadata of calls beside their messages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace moed {

// Initial metadata, sent at admission: how many requests run before this one, and how long it waits.
inline constexpr char kQueuePositionKey[] = "moe-queue-position";
inline constexpr char kQueueSecondsKey[] = "moe-queue-seconds";
// Taken as the request's id when request_id is empty.
inline constexpr char kRequestIdKey[] = "x-request-id";
// For proxies, which choose a server by them. A session's must be that of the message.
inline constexpr char kSessionIdKey[] = "moe-session-id";
inline constexpr char kTopicKey[] = "moe-topic";

// Whether a value arrives as it was sent, by gRPC and through proxies: 1 to 1024 bytes of printable ASCII, without a space at
// either end. gRPC ends a call with others.
inline bool FitsMetadata(std::string_view value) {
  constexpr size_t kMostBytes = 1024;
  const auto prints = [](char c) { return c >= ' ' && c <= '~'; };
  return !value.empty() && value.size() <= kMostBytes && value.front() != ' ' && value.back() != ' ' &&
         std::all_of(value.begin(), value.end(), prints);
}

}  // namespace moed
