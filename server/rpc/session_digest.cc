#include "server/rpc/session_digest.h"

#include <random>

#include "absl/strings/str_format.h"
#include "core/base/sip_hash.h"

namespace moed {
namespace {

SipKey DrawKey() {
  std::random_device device;
  const auto word = [&device] { return uint64_t{device()} << 32 | device(); };
  const uint64_t low = word();
  return {low, word()};
}

}  // namespace

std::string SessionDigest(std::string_view session_id) {
  static const SipKey key = DrawKey();
  return absl::StrFormat("%016x", SipHash(key, session_id));
}

}  // namespace moed
