#include "core/engine/session_table.h"

#include <algorithm>
#include <utility>

namespace moed {

void Sequence::Begin(std::span<const TokenId> prompt, bool whole) {
  size_t common = tokens.size();
  if (whole) {
    const auto last = prompt.end() - 1;
    common = static_cast<size_t>(std::mismatch(prompt.begin(), last, tokens.begin(), tokens.end()).first - prompt.begin());
    prompt = prompt.subspan(common);
  }
  std::vector<TokenId> replaced(tokens.begin() + static_cast<std::ptrdiff_t>(common), tokens.end());
  tokens.reserve(common + prompt.size());
  tokens.resize(common);
  tokens.insert(tokens.end(), prompt.begin(), prompt.end());
  replaced_ = std::move(replaced);
  begun_with_ = static_cast<int>(common);
  computed = std::min(computed, begun_with_);
}

void Sequence::TakeBack() {
  tokens.resize(static_cast<size_t>(begun_with_));
  tokens.insert(tokens.end(), replaced_.begin(), replaced_.end());
  computed = std::min(computed, begun_with_);
  Keep();
}

void Sequence::Keep() {
  begun_with_ = static_cast<int>(tokens.size());
  replaced_ = std::vector<TokenId>();
}

const Sequence* SessionTable::Find(const std::string& session) const {
  auto found = by_name_.find(session);
  return found == by_name_.end() ? nullptr : found->second->get();
}

std::unique_ptr<Sequence> SessionTable::Take(const std::string& session) {
  auto found = by_name_.find(session);
  if (found == by_name_.end()) return nullptr;
  return Remove(found->second);
}

std::unique_ptr<Sequence> SessionTable::Remove(Idle::iterator at) {
  std::unique_ptr<Sequence> sequence = std::move(*at);
  idle_.erase(at);
  by_name_.erase(sequence->session);
  if (const auto count = by_owner_.find(sequence->owner); --count->second == 0) by_owner_.erase(count);
  return sequence;
}

std::unique_ptr<Sequence> SessionTable::Keep(std::unique_ptr<Sequence> sequence) {
  const std::string name = sequence->session;
  ++by_owner_[sequence->owner];
  by_name_[name] = idle_.insert(idle_.end(), std::move(sequence));
  if (size() <= capacity_) return nullptr;
  const auto over = [this](const auto& each) { return by_owner_[each->owner] * by_owner_.size() >= idle_.size(); };
  return Remove(std::find_if(idle_.begin(), idle_.end(), over));
}

std::unique_ptr<Sequence> SessionTable::TakeOldest() { return idle_.empty() ? nullptr : Remove(idle_.begin()); }

void SessionTable::Visit(absl::FunctionRef<bool(Sequence&)> visit) {
  for (auto& sequence : idle_) {
    if (!visit(*sequence)) return;
  }
}

void SessionTable::List(size_t most, std::vector<SessionInfo>& out) const {
  for (auto at = idle_.rbegin(); at != idle_.rend() && out.size() < most; ++at) {
    const Sequence& sequence = **at;
    out.push_back({.name = sequence.session,
                   .busy = false,
                   .tokens = static_cast<int>(sequence.tokens.size()),
                   .computed = sequence.kv.length,
                   .on_disk = sequence.on_disk,
                   .used_nanos = sequence.used_nanos});
  }
}

}  // namespace moed
