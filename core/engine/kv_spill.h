// Keys and values of idle sessions on disk, for sessions whose room in memory is needed by others: what is written here comes
// back when its session goes on, where that is sooner done than computing it again.
//
// An image is what a session holds of the KvPool up to some position: its pages, and with layers of windows or states what lies
// in its slot. It is cut into blocks of one file, each with a checksum. Blocks are written while their pages are still in memory,
// beside the steps that are computed; whoever takes a session up meanwhile finds it as it was. An image belongs to its session
// alone, and ends with it. Where the budget has no room the images of sessions that were idle longest go first.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/fidelity.h"
#include "core/base/ids.h"
#include "core/engine/engine.h"
#include "core/engine/session_table.h"
#include "core/engine/spill_disk.h"
#include "core/engine/spill_prices.h"
#include "core/io/nameless_file.h"
#include "core/model/kv_pool.h"

namespace moed {

// What is known of a model and its sessions before anything is allocated.
struct KvSpillSizes {
  uint64_t budget = 0;      // bytes of disk
  uint64_t page_bytes = 0;  // KvPool::PageBytes
  uint64_t slot_bytes = 0;  // KvPool::SlotBytes
  int page_tokens = kKvPageTokens;
  int max_context = 0;
  int sessions = 0;     // that are known at once, those being answered included
  int max_running = 0;  // of which so many may come back at once
};

// Engine thread only. The pool outlives it; keys and values are the host's memory.
class KvSpill {
 public:
  // `report` hears of what goes wrong, once for each thing. INVALID_ARGUMENT: the budget holds no page; the pool's memory is a
  // device's.
  using Report = std::function<void(const absl::Status&)>;
  static absl::StatusOr<std::unique_ptr<KvSpill>> Create(KvPool& kv, const KvSpillSizes& sizes,
                                                         std::shared_ptr<NamelessFile> file, const Clock& clock, Report report);
  // Of memory: the block under way, and what is known of blocks.
  static uint64_t MemoryBytes(const KvSpillSizes& sizes);

  // Called on a thread of its own when Tend has something to do.
  void SetWaker(std::function<void()> waker) { disk_->SetWaker(std::move(waker)); }

  // What came to its end since the last call.
  struct Restored {
    SequenceId session;
    bool whole = false;  // the pages hold what they should; else anything
    int length = 0;
    int reached = 0;
    Fidelity fidelity;
  };
  std::vector<Restored> Tend();
  void AwaitWork(absl::Duration timeout) { disk_->AwaitDone(timeout); }

  bool saving() const { return saving_.has_value(); }
  // Blocks of images that nobody uses now: when each was used last, ascending, and the sum up to there. Of use until anything
  // else is called.
  using Unused = std::vector<std::pair<int64_t, size_t>>;
  Unused FindUnused() const;
  // Whether Save of an idle session may be of use: there is more of it in memory than on disk, and room for it beside images that
  // were used later.
  bool Wants(const Sequence& idle, const Unused& unused);
  // Begins to write what is not written yet. Its pages and slot stay as they are until TakenUp, Dropped or Forget.
  void Save(const Sequence& idle);

  // A request goes on with the session: of what was written so far the full pages are kept.
  void TakenUp(SequenceId session);
  // The session's first `begun_with` tokens are what they were when it was written; others follow now.
  void Trim(SequenceId session, int begun_with);
  void Dropped(SequenceId session, int length);  // it has lost `length` positions of the pool
  void Forget(SequenceId session);               // it has ended

  // Positions that Restore would bring to `kv`, a sequence of this session whose first `begun_with` tokens are the session's; 0
  // where it has none more than kv's, they are less strict than `fidelity`, or computing them is sooner done.
  int Restorable(SequenceId session, const KvSequence& kv, int begun_with, Fidelity fidelity);
  // Those come to pages and slot of `kv`, which has room for them; its own full pages stay. Tend tells of the end.
  void Restore(SequenceId session, const KvSequence& kv, int positions);
  bool Restoring(SequenceId session) const { return restores_.contains(session); }
  bool restoring() const { return !restores_.empty(); }
  void CancelRestore(SequenceId session);  // its pages and slot hold anything

  SpillPrices& prices() { return prices_; }
  int TokensOnDisk(SequenceId session) const;
  uint64_t version() const { return version_; }  // another one: TokensOnDisk of some session is
  KvSpillStats stats() const;

 private:
  struct Block {
    uint32_t place = 0;
    uint64_t checksum = 0;
  };
  // Blocks of pages from the first one on. Without slots they are of use as far as they go; with them up to `length`, where the
  // state belongs, alone.
  struct Image {
    std::vector<Block> pages;
    std::vector<Block> state;
    int length = 0;
    int reached = 0;
    Fidelity fidelity;
    int64_t used_nanos = 0;
    bool in_memory = true;  // as far as is known the session has its pages, too
    size_t blocks() const { return pages.size() + state.size(); }
  };
  struct Saving {
    SequenceId session;
    uint64_t ticket = 0;
    int first_page = 0;  // of those that are written
    int length = 0;      // of all
    int reached = 0;
  };
  struct Coming {
    uint64_t ticket = 0;
    int from = 0;
    int positions = 0;
  };

  KvSpill(KvPool& kv, const KvSpillSizes& sizes, std::unique_ptr<SpillDisk> disk, Report report);
  int UsableLength(const Image& image) const { return needs_slots() && image.state.empty() ? 0 : image.length; }
  bool needs_slots() const { return kv_.slots() > 0; }
  size_t BlocksOf(uint64_t bytes) const { return (bytes + block_bytes_ - 1) / block_bytes_; }
  size_t PageBlocks(int pages) const { return static_cast<size_t>(pages) * page_blocks_; }
  int PagesFor(int length) const { return KvPool::PagesFor(length, kv_.page_tokens()); }
  size_t InUse() const { return next_block_ - free_.size(); }
  bool GoesBefore(SequenceId other, const Image& image, const Sequence& idle) const;
  size_t RoomFor(const Sequence& idle, const Unused& unused) const;
  void MakeRoom(const Sequence& idle, size_t blocks);
  std::vector<Block> TakeBlocks(size_t count);
  void GiveBack(std::vector<Block>& blocks, size_t kept);
  void GiveUp(SequenceId session);
  void KeepPages(Image& image, int pages);
  void AddPieces(std::span<std::byte> memory, std::span<const Block> blocks, std::vector<SpillPiece>& pieces) const;
  void AddPages(const Image& image, const KvSequence& kv, int first, int end, std::vector<SpillPiece>& pieces) const;
  uint64_t BytesFrom(const Image& image, int first_page, int positions) const;
  void OnWritten(const SpillJob& job);
  void OnRead(const SpillJob& job, std::vector<Restored>& restored);
  void StopSaving(SequenceId session);

  KvPool& kv_;
  const size_t block_bytes_;
  const size_t page_blocks_;   // of one page
  const size_t state_blocks_;  // of a slot
  const size_t most_blocks_;   // of the file
  const std::unique_ptr<SpillDisk> disk_;
  const Report report_;
  absl::flat_hash_map<SequenceId, Image> images_;
  absl::flat_hash_map<SequenceId, Coming> restores_;
  std::optional<Saving> saving_;
  std::vector<uint32_t> free_;  // of the blocks that were in use once
  uint32_t next_block_ = 0;
  SpillPrices prices_;
  KvSpillStats counts_;
  uint64_t version_ = 0;
};

}  // namespace moed
