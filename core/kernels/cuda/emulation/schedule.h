// When the work of streams runs: as late as the rules of order allow, or at times that a seed chooses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>

namespace moed::emulation {

// A place in a stream's work.
struct Recording {
  int stream = 0;
  bool passed = false;
};

struct Work {
  std::function<void()> run;                // null: nothing
  std::function<void()> begin;              // null, or what may happen at any time after all work before it has run
  std::shared_ptr<const Recording> awaits;  // null: nothing
  std::shared_ptr<Recording> passes;        // null: none
};

// Thread contract: one call at a time.
class Schedule {
 public:
  explicit Schedule(uint64_t seed) : lazy_(seed == 0), random_(seed) {}

  int AddStream();
  void RemoveStream(int stream) { streams_.erase(stream); }

  void Enqueue(int stream, Work work);
  bool Idle(int stream) const { return streams_.at(stream).empty(); }
  // The next of its work, and before it what that waits for. There is some.
  void RunNext(int stream);
  void RunAll(int stream);
  void RunAll();
  void RunUntil(const Recording& recording);

 private:
  static bool Waits(const Work& work) { return work.awaits != nullptr && !work.awaits->passed; }
  void GetOn();
  void RunFirst(std::deque<Work>& stream);
  static void BeginFirst(std::deque<Work>& stream);

  const bool lazy_;
  std::minstd_rand random_;
  std::map<int, std::deque<Work>> streams_;
  int next_stream_ = 0;
};

}  // namespace moed::emulation
