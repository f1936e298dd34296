#include "core/engine/kv_spill.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr uint64_t kLargestBlock = 1 << 20;

// A page, or an equal share of a large one.
size_t BlockBytes(const KvSpillSizes& sizes) {
  const uint64_t whole = std::max<uint64_t>(sizes.page_bytes > 0 ? sizes.page_bytes : sizes.slot_bytes, 1);
  return RoundUp(DivideUp(whole, DivideUp(whole, kLargestBlock)), kPageBytes);
}

uint64_t BlocksOfSession(const KvSpillSizes& sizes) {
  const uint64_t block = BlockBytes(sizes);
  const auto pages = static_cast<uint64_t>(KvPool::PagesFor(sizes.max_context, sizes.page_tokens));
  return pages * DivideUp(sizes.page_bytes, block) + DivideUp(sizes.slot_bytes, block);
}

// Sessions hold no more.
uint64_t MostBlocks(const KvSpillSizes& sizes) {
  const uint64_t all = static_cast<uint64_t>(sizes.sessions) * BlocksOfSession(sizes);
  return std::min({sizes.budget / BlockBytes(sizes), all, uint64_t{UINT32_MAX}});
}

}  // namespace

uint64_t KvSpill::MemoryBytes(const KvSpillSizes& sizes) {
  constexpr uint64_t kGrown = 2;  // a vector that is filled one by one
  const uint64_t known = MostBlocks(sizes) * (sizeof(Block) + kGrown * sizeof(uint32_t));
  const uint64_t under_way = std::min(MostBlocks(sizes), (static_cast<uint64_t>(sizes.max_running) + 1) * BlocksOfSession(sizes));
  const uint64_t images =
      static_cast<uint64_t>(sizes.sessions) * (kGrown * (sizeof(SequenceId) + sizeof(Image) + 1) + sizeof(Unused::value_type));
  return BlockBytes(sizes) + known + under_way * sizeof(SpillPiece) + images;
}

absl::StatusOr<std::unique_ptr<KvSpill>> KvSpill::Create(KvPool& kv, const KvSpillSizes& sizes,
                                                         std::shared_ptr<NamelessFile> file, const Clock& clock, Report report) {
  if (&kv.memory() != &BackendMemory::Host()) {
    return InvalidArgument("keys and values of this compute backend are not the processor's: they cannot be spilled to disk");
  }
  MOED_CHECK(sizes.page_bytes == kv.page_bytes() && sizes.slot_bytes == kv.slot_bytes());
  const uint64_t least =
      BlockBytes(sizes) * (DivideUp(sizes.page_bytes, BlockBytes(sizes)) + DivideUp(sizes.slot_bytes, BlockBytes(sizes)));
  if (sizes.budget < least) {
    return InvalidArgument("a budget of ", sizes.budget, " bytes of disk holds no page of keys and values: ", least,
                           " bytes are needed for one and what a session has beside it");
  }
  MOED_ASSIGN_OR_RETURN(auto disk, SpillDisk::Create(std::move(file), BlockBytes(sizes), clock));
  return std::unique_ptr<KvSpill>(new KvSpill(kv, sizes, std::move(disk), std::move(report)));
}

KvSpill::KvSpill(KvPool& kv, const KvSpillSizes& sizes, std::unique_ptr<SpillDisk> disk, Report report)
    : kv_(kv),
      block_bytes_(BlockBytes(sizes)),
      page_blocks_(BlocksOf(sizes.page_bytes)),
      state_blocks_(BlocksOf(sizes.slot_bytes)),
      most_blocks_(MostBlocks(sizes)),
      disk_(std::move(disk)),
      report_(std::move(report)) {
  counts_.budget = sizes.budget;
}

std::vector<KvSpill::Restored> KvSpill::Tend() {
  std::vector<Restored> restored;
  for (const SpillJob& job : disk_->TakeDone()) {
    if (job.way == SpillWay::kWrite) {
      OnWritten(job);
    } else {
      OnRead(job, restored);
    }
  }
  return restored;
}

KvSpill::Unused KvSpill::FindUnused() const {
  Unused unused;
  unused.reserve(images_.size());
  for (const auto& [session, image] : images_) {
    if (!restores_.contains(session)) unused.emplace_back(image.used_nanos, image.blocks());
  }
  std::sort(unused.begin(), unused.end());
  for (size_t i = 1; i < unused.size(); ++i) unused[i].second += unused[i - 1].second;
  return unused;
}

bool KvSpill::Wants(const Sequence& idle, const Unused& unused) {
  if (counts_.ended || idle.kv.length == 0 || kv_.Lost(idle.kv)) return false;
  const auto known = images_.find(idle.id);
  if (known != images_.end() && UsableLength(known->second) >= idle.kv.length) return false;
  const size_t blocks = PageBlocks(PagesFor(idle.kv.length)) + state_blocks_;
  return blocks <= RoomFor(idle, unused) && prices_.ReadingPays(blocks * block_bytes_, idle.kv.length);
}

// What was written before stays, as far as full pages go: their tokens are the same, and they are as strict.
void KvSpill::Save(const Sequence& idle) {
  MOED_CHECK(!saving_ && !restores_.contains(idle.id));
  Image& own = images_[idle.id];
  const bool stricter = idle.kv_fidelity < own.fidelity;
  KeepPages(own, stricter ? 0 : std::min(own.length, idle.kv.length) / kv_.page_tokens());
  const int first = own.length / kv_.page_tokens(), end = PagesFor(idle.kv.length);
  MakeRoom(idle, PageBlocks(end - first) + state_blocks_);
  Image& image = images_[idle.id];
  image.fidelity = first == 0 ? idle.kv_fidelity : std::max(image.fidelity, idle.kv_fidelity);
  image.used_nanos = idle.used_nanos;
  image.in_memory = true;
  const std::vector<Block> more = TakeBlocks(PageBlocks(end - first));
  image.pages.reserve(PageBlocks(end));
  image.pages.insert(image.pages.end(), more.begin(), more.end());
  image.state = TakeBlocks(state_blocks_);
  std::vector<SpillPiece> pieces;
  pieces.reserve(more.size() + state_blocks_);
  AddPages(image, idle.kv, first, end, pieces);
  if (needs_slots()) AddPieces(kv_.SlotBytesOf(idle.kv.slot), image.state, pieces);
  saving_ = Saving{idle.id, disk_->Submit(SpillWay::kWrite, std::move(pieces)), first, idle.kv.length, idle.kv.reached};
}

void KvSpill::TakenUp(SequenceId session) { StopSaving(session); }

void KvSpill::Trim(SequenceId session, int begun_with) {
  const auto found = images_.find(session);
  if (found == images_.end()) return;
  found->second.in_memory = true;
  if (found->second.length > begun_with) KeepPages(found->second, begun_with / kv_.page_tokens());
}

void KvSpill::Dropped(SequenceId session, int length) {
  StopSaving(session);
  const auto found = images_.find(session);
  const int kept = found == images_.end() ? 0 : UsableLength(found->second);
  if (found != images_.end()) found->second.in_memory = false;
  counts_.lost_tokens += static_cast<uint64_t>(std::max(0, length - kept));
}

void KvSpill::Forget(SequenceId session) {
  StopSaving(session);
  CancelRestore(session);
  const auto found = images_.find(session);
  if (found == images_.end()) return;
  KeepPages(found->second, 0);
  images_.erase(found);
}

int KvSpill::Restorable(SequenceId session, const KvSequence& kv, int begun_with, Fidelity fidelity) {
  const auto found = images_.find(session);
  if (found == images_.end() || found->second.fidelity > fidelity) return 0;
  const Image& image = found->second;
  const int positions = std::min(UsableLength(image), begun_with);
  if (positions <= kv.length) return 0;
  if (!kv_.CanCutBack(KvSequence{.pages = {}, .reached = image.reached}, positions, image.length)) return 0;
  const uint64_t bytes = BytesFrom(image, kv.length / kv_.page_tokens(), positions);
  return prices_.ReadingPays(bytes, positions - kv.length) ? positions : 0;
}

void KvSpill::Restore(SequenceId session, const KvSequence& kv, int positions) {
  const Image& image = images_.at(session);
  const int first = kv.length / kv_.page_tokens(), end = PagesFor(positions);
  for (int page = first; page < end; ++page) {
    MOED_CHECK(kv_.HoldersOf(kv.pages[static_cast<size_t>(page)]) == 1 && kv_.LabelOf(kv.pages[static_cast<size_t>(page)]) == 0);
  }
  std::vector<SpillPiece> pieces;
  pieces.reserve(PageBlocks(end - first) + state_blocks_);
  AddPages(image, kv, first, end, pieces);
  if (needs_slots()) AddPieces(kv_.SlotBytesOf(kv.slot), image.state, pieces);
  restores_[session] = {disk_->Submit(SpillWay::kRead, std::move(pieces)), kv.length, positions};
}

void KvSpill::CancelRestore(SequenceId session) {
  const auto found = restores_.find(session);
  if (found == restores_.end()) return;
  disk_->Cancel(found->second.ticket);
  restores_.erase(found);
}

int KvSpill::TokensOnDisk(SequenceId session) const {
  const auto found = images_.find(session);
  return found == images_.end() ? 0 : UsableLength(found->second);
}

KvSpillStats KvSpill::stats() const {
  KvSpillStats stats = counts_;
  stats.on_disk_bytes = InUse() * block_bytes_;
  return stats;
}

// An image that was used before this session was, and that nobody uses now.
bool KvSpill::GoesBefore(SequenceId other, const Image& image, const Sequence& idle) const {
  return other != idle.id && image.used_nanos <= idle.used_nanos && !restores_.contains(other);
}

// Its own blocks, too. They are among those that nobody uses, since it was used no earlier than its image was made.
size_t KvSpill::RoomFor(const Sequence& idle, const Unused& unused) const {
  const auto later = std::upper_bound(unused.begin(), unused.end(), std::pair(idle.used_nanos, SIZE_MAX));
  return most_blocks_ - InUse() + (later == unused.begin() ? 0 : std::prev(later)->second);
}

void KvSpill::MakeRoom(const Sequence& idle, size_t blocks) {
  while (most_blocks_ - InUse() < blocks) {
    std::optional<std::pair<int64_t, SequenceId>> oldest;
    for (const auto& [session, image] : images_) {
      const std::pair<int64_t, SequenceId> candidate(image.used_nanos, session);
      if (GoesBefore(session, image, idle) && (!oldest || candidate < *oldest)) oldest = candidate;
    }
    MOED_CHECK(oldest.has_value());  // RoomFor counted them
    GiveUp(oldest->second);
  }
}

void KvSpill::GiveUp(SequenceId session) {
  Image& image = images_.at(session);
  if (!image.in_memory) counts_.lost_tokens += static_cast<uint64_t>(UsableLength(image));
  KeepPages(image, 0);
  images_.erase(session);
}

// The first pages stay; `length` is then their end.
void KvSpill::KeepPages(Image& image, int pages) {
  GiveBack(image.pages, PageBlocks(pages));
  GiveBack(image.state, 0);
  image.length = pages * kv_.page_tokens();
  image.reached = 0;
  ++version_;
}

std::vector<KvSpill::Block> KvSpill::TakeBlocks(size_t count) {
  std::vector<Block> blocks(count);
  for (Block& block : blocks) {
    if (free_.empty()) {
      block.place = next_block_++;
    } else {
      block.place = free_.back();
      free_.pop_back();
    }
  }
  return blocks;
}

void KvSpill::GiveBack(std::vector<Block>& blocks, size_t kept) {
  for (; blocks.size() > kept; blocks.pop_back()) free_.push_back(blocks.back().place);
}

void KvSpill::AddPieces(std::span<std::byte> memory, std::span<const Block> blocks, std::vector<SpillPiece>& pieces) const {
  for (const Block& block : blocks) {
    const size_t bytes = std::min(memory.size(), block_bytes_);
    pieces.push_back({memory.data(), static_cast<uint32_t>(bytes), block.place, block.checksum});
    memory = memory.subspan(bytes);
  }
}

void KvSpill::AddPages(const Image& image, const KvSequence& kv, int first, int end, std::vector<SpillPiece>& pieces) const {
  for (int page = first; page < end; ++page) {
    AddPieces(kv_.PageBytesOf(kv.pages[static_cast<size_t>(page)]),
              std::span(image.pages).subspan(PageBlocks(page), page_blocks_), pieces);
  }
}

uint64_t KvSpill::BytesFrom(const Image& image, int first_page, int positions) const {
  return (PageBlocks(PagesFor(positions) - first_page) + image.state.size()) * block_bytes_;
}

// Of what was begun: all of it, or the full pages among what was written.
void KvSpill::OnWritten(const SpillJob& job) {
  const Saving saving = *std::exchange(saving_, std::nullopt);
  Image& image = images_.at(saving.session);
  counts_.written_bytes += job.done * block_bytes_;
  counts_.write_seconds += static_cast<double>(job.nanos) * 1e-9;
  prices_.OnWritten(job.done * block_bytes_, job.nanos);
  const size_t first = PageBlocks(saving.first_page), in_pages = image.pages.size() - first;
  for (size_t i = 0; i < job.done; ++i) {
    (i < in_pages ? image.pages[first + i] : image.state[i - in_pages]).checksum = job.pieces[i].checksum;
  }
  if (job.done == job.pieces.size()) {
    image.length = saving.length;
    image.reached = saving.reached;
    ++version_;
  } else {
    const int written = page_blocks_ == 0 ? 0 : static_cast<int>(job.done / page_blocks_);
    KeepPages(image, std::min(saving.first_page + written, saving.length / kv_.page_tokens()));
  }
  if (job.status.ok()) return;
  counts_.ended = true;
  report_(Annotate(job.status, "keys and values of idle sessions are not written to disk any more, serving goes on"));
}

void KvSpill::OnRead(const SpillJob& job, std::vector<Restored>& restored) {
  const auto found =
      std::find_if(restores_.begin(), restores_.end(), [&](const auto& coming) { return coming.second.ticket == job.ticket; });
  const SequenceId session = found->first;
  const Coming coming = found->second;
  restores_.erase(found);
  counts_.read_bytes += job.done * block_bytes_;
  counts_.read_seconds += static_cast<double>(job.nanos) * 1e-9;
  prices_.OnRead(job.done * block_bytes_, job.nanos);
  if (!job.status.ok()) {
    ++counts_.damaged;
    report_(Annotate(job.status, "keys and values of an idle session are computed again"));
    GiveUp(session);
    restored.push_back({.session = session, .whole = false, .fidelity = {}});
    return;
  }
  const Image& image = images_.at(session);
  const int reached = coming.positions < image.length ? std::max(image.reached, image.length) : image.reached;
  counts_.restored_tokens += static_cast<uint64_t>(coming.positions - coming.from);
  restored.push_back({session, true, coming.positions, reached, image.fidelity});
}

void KvSpill::StopSaving(SequenceId session) {
  if (saving_ && saving_->session == session) OnWritten(disk_->Cancel(saving_->ticket));
}

}  // namespace moed
