// One block of a launch: its threads take turns on one host thread, in an order that a seed gives, each running until it waits
// for others. Blocks of a launch run one after another.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/kernels/cuda/emulation/fault.h"
#include "core/kernels/cuda/emulation/fibers.h"
#include "core/kernels/cuda/emulation/thread.h"
#include "core/kernels/cuda/runtime.h"

namespace moed::emulation {

inline constexpr unsigned kWarpLanes = 32;
inline constexpr unsigned kMostThreads = 1024;

// What is told of a block while it runs.
class BlockObserver {
 public:
  virtual ~BlockObserver() = default;
  virtual void BlockBegins(uint3 block) = 0;
  virtual void BlockEnds() = 0;
  virtual void BlockSynced() = 0;
  virtual void WarpSynced(unsigned warp) = 0;  // all its lanes, by __syncwarp
  // Whether the access may be made. `instruction` says which of the kernel's it is.
  virtual bool Permit(const Access& access, unsigned thread, const void* instruction) = 0;
  virtual void OnFault(FaultKind kind, uint3 thread, uintptr_t address, const std::string& text) = 0;
};

class Block {
 public:
  // `without_barrier`: nobody waits there.
  Block(uint64_t seed, std::optional<Place> without_barrier);

  // Runs the block `index` of a launch. `shared` has what the shape asks for.
  void Run(const Kernel& kernel, const LaunchShape& shape, uint3 index, const void* arguments, std::byte* shared, bool watched,
           BlockObserver& observer);

  const std::set<Place>& barriers() const { return barriers_; }  // to which blocks have come

 private:
  friend bool emulation::Permit(const Access&);
  friend void emulation::SyncBlock(const Place&);
  friend uint64_t emulation::SyncWarp(WarpCall, uint32_t, uint64_t, unsigned, const Place&);
  friend unsigned emulation::Lane();

  enum class State : uint8_t { kReady, kAtBarrier, kAtWarp, kReturned };
  struct Thread {
    uint3 index = {};
    State state = State::kReady;
    int fiber = 0;  // on which it is suspended; 0: it has not begun
    Place place = {};
    WarpCall call = WarpCall::kSync;  // kAtWarp, from here on
    uint32_t mask = 0;
    unsigned source = 0;
    uint64_t value = 0;  // then the result
  };

  Thread& thread(unsigned index) { return threads_[index]; }
  void Work();           // of a fiber
  void WaitForOthers();  // of the current thread, whose state says for what
  unsigned TakeReady();  // one of ready_, by chance
  void Resume(unsigned thread);
  void MakeReady(unsigned thread);

  void ArriveAtBarrier(const Place& place);
  uint64_t ArriveAtWarp(WarpCall call, uint32_t mask, uint64_t value, unsigned source, const Place& place);
  void ReleaseBlock();
  void ReleaseWarp(unsigned first, WarpCall call, uint32_t mask);
  void Diverged(unsigned thread, const std::string& why);
  void Tell(FaultKind kind, unsigned thread, const std::string& text);
  std::string Whereabouts(unsigned thread) const;

  Fibers fibers_;
  std::vector<int> idle_;  // fibers without a thread
  std::minstd_rand random_;
  const std::optional<Place> without_barrier_;
  std::set<Place> barriers_;

  Kernel kernel_;
  LaunchShape shape_;
  const void* arguments_ = nullptr;
  BlockObserver* observer_ = nullptr;

  std::array<Thread, kMostThreads> threads_;
  std::array<uint32_t, kMostThreads / kWarpLanes> waiting_lanes_ = {};  // by warp: kAtWarp
  std::vector<unsigned> ready_;
  unsigned count_ = 0;
  unsigned current_ = 0;
  unsigned assigned_ = kMostThreads;  // to the fiber that begins; kMostThreads: any
  unsigned at_barrier_ = 0;
  unsigned returned_ = 0;
  bool diverged_ = false;  // from then on nobody waits and no access is made, so that all threads come to their end
};

}  // namespace moed::emulation
