// Conversations between their requests. While a request answers it owns the sequence; otherwise it lies here.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/fidelity.h"
#include "core/base/ids.h"
#include "core/model/kv_pool.h"

namespace moed {

// Known tokens of one conversation or one anonymous request. Keys and values exist for the first kv.length of them; the rest is
// computed when it is needed.
struct Sequence {
  SequenceId id;
  std::string session;          // "" = anonymous
  std::vector<TokenId> tokens;  // prompts and answers
  KvSequence kv;
  bool begun = false;    // the expert provider was told
  Fidelity kv_fidelity;  // the loosest at which its keys and values were computed
};

// Idle named sequences, least recently kept first. At most `capacity`: whoever is over it is handed out to be ended, and the next
// request with that name begins a new conversation. Not synchronised.
class SessionTable {
 public:
  explicit SessionTable(int capacity) : capacity_(capacity) {}

  const Sequence* Find(const std::string& session) const;
  std::unique_ptr<Sequence> Take(const std::string& session);  // null when unknown
  // Becomes the most recent one. Returns the sequence that had to go, or null.
  std::unique_ptr<Sequence> Keep(std::unique_ptr<Sequence> sequence);
  std::unique_ptr<Sequence> TakeOldest();  // null when empty
  // The least recently kept one that holds memory of the KvPool; null when none does.
  Sequence* OldestWithMemory();

  int size() const { return static_cast<int>(idle_.size()); }

 private:
  using Idle = std::list<std::unique_ptr<Sequence>>;
  const int capacity_;
  Idle idle_;
  absl::flat_hash_map<std::string, Idle::iterator> by_name_;
};

}  // namespace moed
