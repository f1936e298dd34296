// Stacks that one host thread switches between. Number 0 is the caller's own.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace moed::emulation {

// Thread contract: one host thread at a time, the same from a switch away from 0 until the switch back.
class Fibers {
 public:
  // What each runs, over and over: `work` begins again whenever it returns.
  explicit Fibers(std::function<void()> work);
  ~Fibers();

  // A further one, which has not begun.
  int Add();
  int current() const { return current_; }
  // Goes on where `fiber` switched away. Returns when somebody switches back.
  void SwitchTo(int fiber);

 private:
  struct Fiber;
  Fiber& fiber(int index) { return *fibers_[static_cast<size_t>(index)]; }
  void Arrive(Fiber& here);

  const std::function<void()> work_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  int current_ = 0;
  int came_from_ = 0;
  bool ending_ = false;
};

}  // namespace moed::emulation
