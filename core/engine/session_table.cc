#include "core/engine/session_table.h"

#include <utility>

namespace moed {

const Sequence* SessionTable::Find(const std::string& session) const {
  auto found = by_name_.find(session);
  return found == by_name_.end() ? nullptr : found->second->get();
}

std::unique_ptr<Sequence> SessionTable::Take(const std::string& session) {
  auto found = by_name_.find(session);
  if (found == by_name_.end()) return nullptr;
  std::unique_ptr<Sequence> sequence = std::move(*found->second);
  idle_.erase(found->second);
  by_name_.erase(found);
  return sequence;
}

std::unique_ptr<Sequence> SessionTable::Keep(std::unique_ptr<Sequence> sequence) {
  const std::string name = sequence->session;
  by_name_[name] = idle_.insert(idle_.end(), std::move(sequence));
  return size() > capacity_ ? TakeOldest() : nullptr;
}

std::unique_ptr<Sequence> SessionTable::TakeOldest() {
  if (idle_.empty()) return nullptr;
  std::unique_ptr<Sequence> oldest = std::move(idle_.front());
  idle_.pop_front();
  by_name_.erase(oldest->session);
  return oldest;
}

Sequence* SessionTable::OldestWithMemory() {
  for (auto& sequence : idle_) {
    if (sequence->kv.holds_memory()) return sequence.get();
  }
  return nullptr;
}

}  // namespace moed
