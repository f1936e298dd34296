#include "server/rpc/special_token_filter.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace moed {

std::string SpecialTokenFilter::Put(std::span<const TokenInfo> tokens, std::string_view text) {
  for (const TokenInfo& token : tokens) {
    if (!tokenizer_.IsSpecial(token.token)) continue;
    std::string spelled = tokenizer_.TokenBytes(token.token);
    if (!spelled.empty() && !Keeps(spelled)) dropped_.push_back(std::move(spelled));
  }
  held_ += text;
  std::string stays;
  while (!dropped_.empty()) {
    const size_t at = held_.find(dropped_.front());
    if (at == std::string::npos) break;
    stays += std::string_view(held_).substr(0, at);
    held_.erase(0, at + dropped_.front().size());
    dropped_.pop_front();
  }
  const size_t more = held_.size() - (dropped_.empty() ? 0 : BytesThatMayBegin(dropped_.front()));
  stays += std::string_view(held_).substr(0, more);
  held_.erase(0, more);
  return stays;
}

bool SpecialTokenFilter::Keeps(std::string_view spelled) const {
  return std::ranges::any_of(kept_, [&](const std::string& marker) { return marker.find(spelled) != std::string::npos; });
}

// At the end of what is held.
size_t SpecialTokenFilter::BytesThatMayBegin(std::string_view spelled) const {
  size_t bytes = std::min(held_.size(), spelled.size() - 1);
  while (!std::string_view(held_).ends_with(spelled.substr(0, bytes))) --bytes;
  return bytes;
}

}  // namespace moed
