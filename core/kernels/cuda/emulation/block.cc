#include "core/kernels/cuda/emulation/block.h"

#include <bit>
#include <numeric>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/base/status.h"

namespace moed::emulation {
namespace {

std::string At(const Place& place) {
  const std::string_view file = place.file;
  return absl::StrFormat("%s:%d", std::string(file.substr(file.rfind('/') + 1)), place.line);
}

const char* NameOf(WarpCall call) {
  switch (call) {
    case WarpCall::kSync:
      return "__syncwarp";
    case WarpCall::kShuffle:
      return "a shuffle";
    case WarpCall::kBallot:
      return "a vote";
  }
  return "";
}

}  // namespace

Block::Block(uint64_t seed, std::optional<Place> without_barrier)
    : fibers_([this] { Work(); }), random_(static_cast<std::minstd_rand::result_type>(seed)), without_barrier_(without_barrier) {}

void Block::Run(const Kernel& kernel, const LaunchShape& shape, uint3 index, const void* arguments, std::byte* shared,
                bool watched, BlockObserver& observer) {
  kernel_ = kernel;
  shape_ = shape;
  arguments_ = arguments;
  observer_ = &observer;
  count_ = shape.block.count();
  at_barrier_ = returned_ = 0;
  diverged_ = false;
  waiting_lanes_.fill(0);
  ready_.resize(count_);
  std::iota(ready_.begin(), ready_.end(), 0u);
  for (unsigned i = 0; i < count_; ++i) {
    threads_[i] = {.index = {i % shape.block.x, i / shape.block.x % shape.block.y, i / shape.block.x / shape.block.y}};
  }
  running = {.shared = shared, .watched = watched, .block = this};
  blockIdx = index;
  blockDim = shape.block;
  gridDim = shape.grid;
  observer.BlockBegins(index);

  while (returned_ < count_) {
    if (ready_.empty()) {
      unsigned waiting = 0;
      while (thread(waiting).state == State::kReturned) ++waiting;
      Diverged(waiting, "nobody comes to where it waits");
    }
    Resume(TakeReady());
  }
  observer.BlockEnds();
  running = {};
}

unsigned Block::TakeReady() {
  const size_t at = uint64_t{random_()} * ready_.size() >> 31;  // random_() has 31 bits
  std::swap(ready_[at], ready_.back());
  const unsigned taken = ready_.back();
  ready_.pop_back();
  return taken;
}

// Switches to where the thread waits, or to a fiber that begins it.
void Block::Resume(unsigned index) {
  if (thread(index).fiber != 0) return fibers_.SwitchTo(thread(index).fiber);
  if (idle_.empty()) idle_.push_back(fibers_.Add());
  const int fiber = idle_.back();
  idle_.pop_back();
  assigned_ = index;
  fibers_.SwitchTo(fiber);
}

// Threads that never wait follow each other on one fiber, without a switch between.
void Block::Work() {
  while (true) {
    unsigned next = std::exchange(assigned_, kMostThreads);
    if (next == kMostThreads && !ready_.empty()) next = TakeReady();
    if (next == kMostThreads || thread(next).fiber != 0) {
      const int fiber = next == kMostThreads ? 0 : thread(next).fiber;
      idle_.push_back(fibers_.current());
      fibers_.SwitchTo(fiber);
      return;  // to Fibers, which may be ending
    }
    thread(next).fiber = fibers_.current();
    current_ = next;
    threadIdx = thread(next).index;
    kernel_.run(arguments_);
    thread(current_).state = State::kReturned;
    ++returned_;
  }
}

void Block::WaitForOthers() {
  const unsigned me = current_;
  if (ready_.empty()) {
    fibers_.SwitchTo(0);
  } else if (const unsigned next = TakeReady(); next != me) {
    Resume(next);
  }
  current_ = me;
  threadIdx = thread(me).index;
}

void Block::MakeReady(unsigned index) {
  thread(index).state = State::kReady;
  ready_.push_back(index);
}

void Block::ArriveAtBarrier(const Place& place) {
  if (diverged_ || place == without_barrier_) return;
  Thread& me = thread(current_);
  me.state = State::kAtBarrier;
  me.place = place;
  if (++at_barrier_ == count_) ReleaseBlock();
  WaitForOthers();
}

void Block::ReleaseBlock() {
  for (unsigned i = 1; i < count_; ++i) {
    if (thread(i).place != thread(0).place) return Diverged(i, "others wait at another barrier");
  }
  at_barrier_ = 0;
  barriers_.insert(thread(0).place);
  for (unsigned i = 0; i < count_; ++i) MakeReady(i);
  observer_->BlockSynced();
}

uint64_t Block::ArriveAtWarp(WarpCall call, uint32_t mask, uint64_t value, unsigned source, const Place& place) {
  if (diverged_) return 0;
  const unsigned lane = current_ % kWarpLanes;
  Thread& me = thread(current_);
  if ((mask >> lane & 1) == 0) {
    Tell(FaultKind::kInactiveLane, current_,
         absl::StrFormat("calls %s at %s with mask %08x, which does not name it", NameOf(call), At(place), mask));
    return 0;
  }
  me.state = State::kAtWarp;
  me.place = place;
  me.call = call;
  me.mask = mask;
  me.value = value;
  me.source = source;
  uint32_t& waiting = waiting_lanes_[current_ / kWarpLanes];
  waiting |= 1u << lane;
  if ((waiting & mask) == mask) ReleaseWarp(current_ - lane, call, mask);
  const unsigned index = current_;
  WaitForOthers();
  return diverged_ ? 0 : thread(index).value;
}

void Block::ReleaseWarp(unsigned first, WarpCall call, uint32_t mask) {
  const auto each = [&](auto&& visit) {
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1) visit(static_cast<unsigned>(std::countr_zero(rest)));
  };
  std::array<uint64_t, kWarpLanes> values = {};
  uint64_t ballot = 0;
  unsigned elsewhere = kWarpLanes;
  each([&](unsigned lane) {
    const Thread& one = thread(first + lane);
    if (one.call != call || one.mask != mask) elsewhere = lane;
    values[lane] = one.value;
    if (one.value != 0) ballot |= uint64_t{1} << lane;
  });
  if (elsewhere != kWarpLanes) return Diverged(current_, "of the lanes that it names, " + Whereabouts(first + elsewhere));
  waiting_lanes_[first / kWarpLanes] &= ~mask;
  each([&](unsigned lane) {
    Thread& one = thread(first + lane);
    if (call == WarpCall::kShuffle) {
      if ((mask >> one.source & 1) == 0) {
        Tell(FaultKind::kInactiveLane, first + lane,
             absl::StrFormat("shuffles at %s from lane %d, which mask %08x does not name", At(one.place), one.source, mask));
      }
      one.value = values[one.source];
    } else {
      one.value = ballot;
    }
    MakeReady(first + lane);
  });
  if (call == WarpCall::kSync && mask == 0xffffffffu) observer_->WarpSynced(first / kWarpLanes);
}

std::string Block::Whereabouts(unsigned index) const {
  const Thread& one = threads_[index];
  const uint3 at = threads_[index].index;
  const std::string who = absl::StrFormat("thread (%d,%d,%d)", at.x, at.y, at.z);
  switch (one.state) {
    case State::kReady:
      return who + " runs";
    case State::kAtBarrier:
      return who + " waits at the barrier of " + At(one.place);
    case State::kAtWarp:
      return absl::StrFormat("%s waits at %s of %s with mask %08x", who, NameOf(one.call), At(one.place), one.mask);
    case State::kReturned:
      return who + " has returned";
  }
  return who;
}

// Tells where the thread is, and the first one that is elsewhere; then nobody waits any more.
void Block::Diverged(unsigned index, const std::string& why) {
  std::string text = StrCat(Whereabouts(index), "; ", why);
  for (unsigned i = 0; i < count_; ++i) {
    if (thread(i).state != thread(index).state || thread(i).place != thread(index).place) {
      text += StrCat("; ", Whereabouts(i));
      break;
    }
  }
  Tell(FaultKind::kDivergence, index, text);
  diverged_ = true;
  running.watched = true;
  for (unsigned i = 0; i < count_; ++i) {
    if (thread(i).state == State::kAtBarrier || thread(i).state == State::kAtWarp) MakeReady(i);
  }
}

void Block::Tell(FaultKind kind, unsigned index, const std::string& text) {
  observer_->OnFault(kind, threads_[index].index, 0, text);
}

bool Permit(const Access& access) {
  Block& block = *running.block;
  return !block.diverged_ && block.observer_->Permit(access, block.current_, __builtin_return_address(0));
}

void SyncBlock(const Place& place) { running.block->ArriveAtBarrier(place); }

uint64_t SyncWarp(WarpCall call, uint32_t mask, uint64_t value, unsigned source, const Place& place) {
  return running.block->ArriveAtWarp(call, mask, value, source, place);
}

unsigned Lane() { return running.block->current_ % kWarpLanes; }

}  // namespace moed::emulation
