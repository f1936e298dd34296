#include "core/kernels/cuda/emulation/watcher.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "core/base/status.h"

namespace moed::emulation {
namespace {

std::string Index(uint3 index) { return absl::StrFormat("(%d,%d,%d)", index.x, index.y, index.z); }

uint3 IndexOf(unsigned thread, const Dimensions& block) {
  return {thread % block.x, thread / block.x % block.y, thread / block.x / block.y};
}

std::string Describe(const Access& access) {
  const char* what = access.kind == AccessKind::kLoad ? "loads" : "stores";
  if (access.space == Space::kShared)
    return absl::StrFormat("%s %d bytes at byte %d of shared memory", what, access.bytes, access.address);
  return absl::StrFormat("%s %d bytes at %#x", what, access.bytes, access.address);
}

// visit(word, first, end): the bytes of each word that the access touches, until it returns false.
template <class Visit>
void EachWord(const Access& access, Visit&& visit) {
  const uintptr_t end = access.address + access.bytes;
  for (uintptr_t at = access.address, next; at < end; at = next) {
    next = std::min(end, at / kWordBytes * kWordBytes + kWordBytes);
    const unsigned first = at % kWordBytes;
    if (!visit(at / kWordBytes, first, first + static_cast<unsigned>(next - at))) return;
  }
}

}  // namespace

void Watcher::LaunchBegins(std::string kernel, const LaunchShape& shape, bool checks, AccessLog* log) {
  kernel_ = std::move(kernel);
  shape_ = shape;
  checks_ = checks;
  log_ = log;
  blocks_.clear();
  piece_ = {};  // it may have been returned meanwhile
  clock_.LaunchBegins();
  global_.LaunchBegins();
  earlier_faults_ = faults_.size();
  if (log_ != nullptr) log_->LaunchBegins(kernel_);
}

void Watcher::BlockBegins(uint3 block) {
  block_ = block;
  clock_.BlockBegins();
  shared_.clear();  // another block's is other memory
  shared_.resize((shape_.shared_bytes + kWordBytes - 1) / kWordBytes);
  blocks_.emplace_back(clock_.block_began, block);
}

void Watcher::BlockEnds() {
  if (log_ != nullptr) log_->BlockSynced();
}

void Watcher::BlockSynced() {
  clock_.BlockSynced();
  if (log_ != nullptr) log_->BlockSynced();
}

bool Watcher::Permit(const Access& access, unsigned thread, const void* instruction) {
  if (checks_ && !Check(access, thread)) return false;
  if (log_ != nullptr) log_->Add(access, thread, instruction);
  return true;
}

bool Watcher::Check(const Access& access, unsigned thread) {
  if (!InBounds(access)) {
    OnFault(FaultKind::kOutOfBounds, thread, access,
            access.space == Space::kShared ? StrCat(", of which the block has ", shape_.shared_bytes)
                                           : ", which no allocation holds");
    return false;
  }
  if (access.address % access.alignment != 0) {
    OnFault(FaultKind::kMisaligned, thread, access, StrCat(", which is no multiple of ", access.alignment));
    return false;
  }
  if (access.space == Space::kShared && access.kind == AccessKind::kLoad && !Written(access)) {
    OnFault(FaultKind::kUninitialised, thread, access, ", where no thread of the block has stored");
  }
  CheckRaces(access, thread);
  return true;
}

bool Watcher::InBounds(const Access& access) {
  if (access.space == Space::kShared)
    return access.address <= shape_.shared_bytes && shape_.shared_bytes - access.address >= access.bytes;
  if (!piece_.Holds(access.address, access.bytes)) piece_ = PieceAt(access.address);
  return piece_.Holds(access.address, access.bytes);
}

WordHistory& Watcher::HistoryOf(Space space, uintptr_t word) { return space == Space::kShared ? shared_[word] : global_[word]; }

bool Watcher::Written(const Access& access) {
  bool written = true;
  EachWord(access, [&](uintptr_t word, unsigned first, unsigned end) {
    return written = shared_[word].StoredSince(clock_.block_began, first, end);
  });
  return written;
}

void Watcher::CheckRaces(const Access& access, unsigned thread) {
  std::optional<Conflict> found;
  uintptr_t at = 0;
  EachWord(access, [&](uintptr_t word, unsigned first, unsigned end) {
    const std::optional<Conflict> conflict = HistoryOf(access.space, word).Touch(clock_, access.kind, thread, first, end);
    if (conflict && !found) {
      found = conflict;
      at = std::max(access.address, word * kWordBytes + conflict->byte) - access.address;
    }
    return true;
  });
  if (!found) return;
  OnFault(FaultKind::kRace, thread, access, StrCat("; byte ", at, " ", Describe(*found), " without a barrier between"));
}

std::string Watcher::Describe(const Conflict& conflict) const {
  const std::string thread = Index(IndexOf(conflict.with.thread, shape_.block));
  const char* what = conflict.stored ? "stored" : "loaded";
  if (conflict.same_block) return StrCat("was ", what, " by thread ", thread);
  const auto began = std::upper_bound(blocks_.begin(), blocks_.end(), conflict.with.time,
                                      [](uint32_t time, const auto& block) { return time < block.first; });
  return StrCat("was ", what, " by a thread of block ", Index(std::prev(began)->second));
}

std::vector<Fault> Watcher::TakeFaults() {
  earlier_faults_ = 0;
  return std::exchange(faults_, {});
}

void Watcher::StreamFault(std::string what, uintptr_t address, const std::string& text) {
  faults_.push_back({.kind = FaultKind::kOutOfBounds, .kernel = what, .address = address, .text = StrCat(what, ": ", text)});
}

void Watcher::OnFault(FaultKind kind, unsigned thread, const Access& access, const std::string& text) {
  OnFault(kind, IndexOf(thread, shape_.block), access.address, StrCat(emulation::Describe(access), text));
}

void Watcher::OnFault(FaultKind kind, uint3 thread, uintptr_t address, const std::string& text) {
  if (faults_.size() - earlier_faults_ >= kMostFaults) return;
  const auto alike = [&](const Fault& fault) { return fault.kind == kind; };
  if (std::any_of(faults_.begin() + static_cast<ptrdiff_t>(earlier_faults_), faults_.end(), alike)) return;
  faults_.push_back({kind, kernel_, block_, thread, address,
                     StrCat(kernel_, ", block ", Index(block_), ", thread ", Index(thread), ": ", text)});
}

}  // namespace moed::emulation
