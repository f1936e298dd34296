// Conversations between their requests. While a request answers it owns the sequence; otherwise it lies here.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "core/base/fidelity.h"
#include "core/base/ids.h"
#include "core/engine/engine.h"
#include "core/model/kv_pool.h"

namespace moed {

// Known tokens of one conversation or one anonymous request. Keys and values exist for the first kv.length of them; the rest is
// computed when it is needed.
struct Sequence {
  SequenceId id;
  std::string session;          // "" = anonymous
  std::vector<TokenId> tokens;  // prompts and answers
  uint64_t owner = 0;           // who may begin with what is computed of it (OwnedTokens)
  KvSequence kv;
  bool begun = false;      // the expert provider was told
  Fidelity kv_fidelity;    // the loosest at which its keys and values were computed
  int computed = 0;        // of the tokens, the first so many were computed once, whether or not that is still there
  int64_t used_nanos = 0;  // Clock time when its last request ended
  int on_disk = 0;         // positions that KvSpill has, as the engine's thread told last

  // A request takes place: its prompt follows the tokens or, `whole`, is put in their place, and then stay those of them that it
  // begins with, its last token aside. When it throws nothing has changed.
  void Begin(std::span<const TokenId> prompt, bool whole);
  // How many of the tokens were there before Begin: of what follows, no keys and values may be left from before.
  int begun_with() const { return begun_with_; }
  void TakeBack();  // the tokens are those before Begin
  void Keep();      // the tokens are those of now

 private:
  int begun_with_ = 0;
  std::vector<TokenId> replaced_;  // what followed those, before
};

// Idle named sequences, least recently kept first. At most `capacity`: one more, and the oldest of an owner that has more than an
// equal share of them is handed out to be ended; the next request with that name begins a new conversation. So nobody loses a
// session to others while it has no more than its share. Not synchronised.
class SessionTable {
 public:
  explicit SessionTable(int capacity) : capacity_(capacity) {}

  const Sequence* Find(const std::string& session) const;
  std::unique_ptr<Sequence> Take(const std::string& session);  // null when unknown
  // Becomes the most recent one. Returns the sequence that had to go, or null.
  std::unique_ptr<Sequence> Keep(std::unique_ptr<Sequence> sequence);
  std::unique_ptr<Sequence> TakeOldest();  // null when empty
  // The least recently kept one first, until `visit` says false.
  void Visit(absl::FunctionRef<bool(Sequence&)> visit);

  // The first `most`, most recently kept first.
  void List(size_t most, std::vector<SessionInfo>& out) const;

  int size() const { return static_cast<int>(idle_.size()); }

 private:
  using Idle = std::list<std::unique_ptr<Sequence>>;
  std::unique_ptr<Sequence> Remove(Idle::iterator at);
  const int capacity_;
  Idle idle_;
  std::map<std::string, Idle::iterator> by_name_;  // as Admission's tables
  std::map<uint64_t, size_t> by_owner_;            // how many; never 0
};

}  // namespace moed
