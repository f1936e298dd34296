// One text that follows a grammar, token by token: which tokens may come next.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/grammar/grammar.h"
#include "core/grammar/vocabulary_trie.h"

namespace moed::grammar {

// States of the automaton are made as texts reach them, and kept with what they allow while there is room. Not synchronised.
class Matcher {
 public:
  static constexpr int kMostNested = 256;  // rules within each other; what would go deeper is not allowed

  // Holds about `cache_bytes` (MatcherCacheBytes) beside the grammar, whatever the text is. The trie must outlive it.
  Matcher(std::shared_ptr<const Grammar> grammar, const VocabularyTrie& trie, uint64_t cache_bytes);

  // Why there are no masks: INVALID_ARGUMENT where the grammar has too many ways to begin.
  const absl::Status& status() const { return failure_; }
  // The tokens that keep the text one that can become whole: a bit for each of the vocabulary. Valid until the next call.
  // FAILED_PRECONDITION where there is none and the text may not end; INVALID_ARGUMENT where the grammar has too many states.
  absl::StatusOr<std::span<const uint64_t>> Allowed();
  bool MayEnd() const;
  // The text's next bytes. INTERNAL for what Allowed does not allow.
  absl::Status Accept(std::string_view bytes);

 private:
  using Thread = uint64_t;  // an instruction and a stack
  struct Frame {
    uint32_t parent;
    Pc pc;  // to return to
    int depth;
  };
  static constexpr int32_t kNowhere = -1;
  static constexpr int32_t kUnknown = -2;

  static Thread MakeThread(Pc pc, uint32_t stack) { return uint64_t{pc} << 32 | stack; }
  void Clear();
  void Flush();
  void MakeRoomForMask();
  uint64_t MaskBytes() const { return trie_.mask_words() * sizeof(uint64_t) + 64; }
  void FollowAll(std::vector<Thread> work);
  void Follow(Pc pc, uint32_t stack, std::vector<Thread>& work);
  uint32_t Pushed(uint32_t stack, Pc pc);
  int32_t StateOf(std::vector<Thread> threads);
  int32_t Next(int32_t state, uint8_t byte) {
    const int byte_class = program_.byte_class[byte];
    const int32_t next = rows_[static_cast<size_t>(state) * program_.classes + byte_class];
    return next == kUnknown ? Step(state, byte) : next;
  }
  int32_t Step(int32_t state, uint8_t byte);
  bool Walk(std::vector<uint64_t>& mask);

  const std::shared_ptr<const Grammar> grammar_;
  const Program& program_;
  const VocabularyTrie& trie_;
  const uint64_t most_bytes_;

  std::vector<Frame> frames_;  // 0 is the empty stack
  absl::flat_hash_map<Thread, uint32_t> frame_of_;
  std::vector<std::vector<Thread>> states_;  // ascending; with an instruction kMatch where the text may end
  absl::flat_hash_map<std::vector<Thread>, int32_t> state_of_;
  std::vector<int32_t> rows_;  // (states, classes)
  absl::flat_hash_map<int32_t, std::vector<uint64_t>> masks_;
  uint64_t bytes_ = 0;  // of all of these
  int32_t current_ = 0;
  size_t followed_ = 0;  // threads, since the last mask was begun
  absl::Status failure_;

  absl::flat_hash_set<Thread> seen_;  // scratch
  std::vector<Thread> reached_;       // scratch
};

// That a matcher's cache should have: some dozens of masks.
uint64_t MatcherCacheBytes(int vocabulary);

}  // namespace moed::grammar
