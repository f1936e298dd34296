// A session's id for logs: who reads them must not learn what continues a conversation.
#pragma once

#include <string>
#include <string_view>

namespace moed {

// 16 hexadecimal digits: SipHash under a key that this process has drawn. Sessions do not outlive the process either.
// Thread-safe.
std::string SessionDigest(std::string_view session_id);

}  // namespace moed
