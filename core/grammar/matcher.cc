#include "core/grammar/matcher.h"

#include <algorithm>

#include "core/base/status.h"

namespace moed::grammar {
namespace {

constexpr size_t kMostThreads = 4096;      // alternatives that a text has at once
constexpr size_t kMostFollowed = 1 << 20;  // of them, for one mask
// The format's fault, whoever else asks for what: to try again changes nothing.
constexpr const char* kSimpler = "; say it with fewer alternatives that begin alike, and fewer repetitions within each other";
using Kind = Instruction::Kind;

Pc PcOf(uint64_t thread) { return static_cast<Pc>(thread >> 32); }
uint32_t StackOf(uint64_t thread) { return static_cast<uint32_t>(thread); }

}  // namespace

uint64_t MatcherCacheBytes(int vocabulary) {
  return (uint64_t{64} << 10) + uint64_t{24} * (static_cast<uint64_t>(vocabulary) / 8);
}

Matcher::Matcher(std::shared_ptr<const Grammar> grammar, const VocabularyTrie& trie, uint64_t cache_bytes)
    : grammar_(std::move(grammar)), program_(grammar_->program()), trie_(trie), most_bytes_(cache_bytes) {
  Clear();
  FollowAll({MakeThread(program_.start, 0)});
  if (!failure_.ok()) reached_ = {MakeThread(ProgramBuilder::kDead, 0)};
  current_ = StateOf(reached_);
}

void Matcher::Clear() {
  frames_ = {{0, 0, 0}};
  frame_of_.clear();
  states_.clear();
  state_of_.clear();
  rows_.clear();
  masks_.clear();
  bytes_ = 0;
}

// Forgets everything but where the text is.
void Matcher::Flush() {
  const std::vector<Frame> frames = frames_;
  const std::vector<Thread> threads = states_[current_];
  Clear();
  std::vector<Thread> kept;
  for (const Thread thread : threads) {
    std::vector<Pc> returns;
    for (uint32_t at = StackOf(thread); at != 0; at = frames[at].parent) returns.push_back(frames[at].pc);
    uint32_t stack = 0;
    for (auto pc = returns.rbegin(); pc != returns.rend(); ++pc) stack = Pushed(stack, *pc);
    kept.push_back(MakeThread(PcOf(thread), stack));
  }
  std::sort(kept.begin(), kept.end());
  current_ = StateOf(std::move(kept));
}

// From `work` to the instructions that take a byte, into reached_.
void Matcher::FollowAll(std::vector<Thread> work) {
  seen_.clear();
  reached_.clear();
  while (!work.empty()) {
    const Thread thread = work.back();
    work.pop_back();
    if (!seen_.insert(thread).second) continue;
    if (seen_.size() > kMostThreads) {
      failure_ = InvalidArgument("a text has more than ", kMostThreads, " ways to go on", kSimpler);
      reached_.clear();
      return;
    }
    Follow(PcOf(thread), StackOf(thread), work);
  }
  followed_ += seen_.size();
  std::sort(reached_.begin(), reached_.end());
}

void Matcher::Follow(Pc pc, uint32_t stack, std::vector<Thread>& work) {
  const Instruction& one = program_.code[pc];
  switch (one.kind) {
    case Kind::kSplit:
      work.push_back(MakeThread(one.next, stack));
      work.push_back(MakeThread(one.other, stack));
      return;
    case Kind::kCall: {
      const bool last = program_.code[one.next].kind == Kind::kReturn;  // then it returns to where this rule does
      if (!last && frames_[stack].depth >= kMostNested) return;
      work.push_back(MakeThread(program_.rules[one.other], last ? stack : Pushed(stack, one.next)));
      return;
    }
    case Kind::kReturn:
      work.push_back(MakeThread(frames_[stack].pc, frames_[stack].parent));
      return;
    case Kind::kDead:
      return;
    default:
      reached_.push_back(MakeThread(pc, stack));
  }
}

uint32_t Matcher::Pushed(uint32_t stack, Pc pc) {
  const auto [found, is_new] = frame_of_.try_emplace(MakeThread(pc, stack), static_cast<uint32_t>(frames_.size()));
  if (is_new) {
    frames_.push_back({stack, pc, frames_[stack].depth + 1});
    bytes_ += 2 * (sizeof(Frame) + sizeof(Thread) + sizeof(uint32_t) + 1);
  }
  return found->second;
}

int32_t Matcher::StateOf(std::vector<Thread> threads) {
  if (threads.empty()) return kNowhere;
  const auto [found, is_new] = state_of_.try_emplace(std::move(threads), static_cast<int32_t>(states_.size()));
  if (is_new) {
    states_.push_back(found->first);
    rows_.resize(rows_.size() + program_.classes, kUnknown);
    // Vectors and tables hold up to twice what they have.
    bytes_ +=
        2 * (found->first.size() * sizeof(Thread) + sizeof(std::vector<Thread>) * 2 + program_.classes * sizeof(int32_t) + 16);
  }
  return found->second;
}

int32_t Matcher::Step(int32_t state, uint8_t byte) {
  std::vector<Thread> work;
  for (const Thread thread : states_[state]) {
    const Instruction& one = program_.code[PcOf(thread)];
    if (one.kind == Kind::kBytes && one.low <= byte && byte <= one.high) work.push_back(MakeThread(one.next, StackOf(thread)));
  }
  FollowAll(std::move(work));
  const int32_t next = StateOf(reached_);
  rows_[static_cast<size_t>(state) * program_.classes + program_.byte_class[byte]] = next;
  return next;
}

// Masks first, for states took more work; where states take the most, these too.
void Matcher::MakeRoomForMask() {
  if (bytes_ + MaskBytes() <= most_bytes_) return;
  bytes_ -= masks_.size() * MaskBytes();
  masks_.clear();
  if (bytes_ + MaskBytes() > most_bytes_ / 2) Flush();
}

// False where there is no room for the states that it needs.
bool Matcher::Walk(std::vector<uint64_t>& mask) {
  mask.assign(trie_.mask_words(), 0);
  std::vector<int32_t> path(trie_.deepest() + 1);
  path[0] = current_;
  const auto& nodes = trie_.nodes();
  for (size_t i = 0; i < nodes.size();) {
    const VocabularyTrie::Node& node = nodes[i];
    const int32_t next = Next(path[node.depth - 1], node.byte);
    if (followed_ > kMostFollowed) {
      failure_ = InvalidArgument("what may come next takes more than ", kMostFollowed, " steps to tell", kSimpler);
    }
    if (!failure_.ok()) return true;
    if (bytes_ > most_bytes_) return false;
    if (next == kNowhere) {
      i = node.end;
      continue;
    }
    path[node.depth] = next;
    for (int32_t token = node.token; token >= 0; token = trie_.NextOfSameBytes(token))
      mask[token / 64] |= uint64_t{1} << (token % 64);
    ++i;
  }
  return true;
}

absl::StatusOr<std::span<const uint64_t>> Matcher::Allowed() {
  MOED_RETURN_IF_ERROR(Annotate(failure_, "format"));
  if (const auto found = masks_.find(current_); found != masks_.end()) return std::span<const uint64_t>(found->second);
  std::vector<uint64_t> mask;
  followed_ = 0;
  MakeRoomForMask();
  if (!Walk(mask)) {
    Flush();
    if (!Walk(mask)) return InvalidArgument("format: its automaton has more states than ", most_bytes_, " bytes hold", kSimpler);
  }
  MOED_RETURN_IF_ERROR(Annotate(failure_, "format"));
  const bool none = std::all_of(mask.begin(), mask.end(), [](uint64_t word) { return word == 0; });
  if (none && !MayEnd()) return FailedPrecondition("format: no token of the vocabulary continues the text");
  bytes_ += MaskBytes();
  return std::span<const uint64_t>(masks_[current_] = std::move(mask));
}

bool Matcher::MayEnd() const { return PcOf(states_[current_].front()) == ProgramBuilder::kMatch; }

absl::Status Matcher::Accept(std::string_view bytes) {
  for (const char byte : bytes) {
    if (bytes_ > most_bytes_) Flush();
    const int32_t next = Next(current_, static_cast<uint8_t>(byte));
    MOED_RETURN_IF_ERROR(Annotate(failure_, "format"));
    if (next == kNowhere) return Internal("format: the text left its grammar");
    current_ = next;
  }
  return absl::OkStatus();
}

}  // namespace moed::grammar
