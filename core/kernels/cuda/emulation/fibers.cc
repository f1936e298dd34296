// Boost.Context switches; AddressSanitizer is told of each switch, since it keeps bounds of the stack it believes to be on. This
// file itself is compiled without it, so that frames which outlive a fiber's last message to it are on no stack of its making.
#include "core/kernels/cuda/emulation/fibers.h"

#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <utility>

#ifdef MOED_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace moed::emulation {
namespace {

constexpr size_t kStackBytes = 256 << 10;  // what is not touched takes no memory

// Stacks with a page below that nobody may touch.
class Stacks {
 public:
  boost::context::stack_context allocate() { return pages_.allocate(); }
  void deallocate(boost::context::stack_context& stack) {
#ifdef MOED_ADDRESS_SANITIZER
    // What the last frames have marked, whoever is given these pages next must not find.
    __asan_unpoison_memory_region(static_cast<char*>(stack.sp) - stack.size, stack.size);
#endif
    pages_.deallocate(stack);
  }

 private:
  boost::context::protected_fixedsize_stack pages_{kStackBytes};
};

}  // namespace

struct Fibers::Fiber {
  boost::context::fiber suspended;
  const void* bottom = nullptr;
  size_t bytes = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's, while this one is suspended

#ifdef MOED_ADDRESS_SANITIZER
  void Leave(const Fiber& to, bool for_good) {
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_stack, to.bottom, to.bytes);
  }
  void Enter(Fiber& from) { __sanitizer_finish_switch_fiber(fake_stack, &from.bottom, &from.bytes); }
#else
  void Leave(const Fiber&, bool) {}
  void Enter(Fiber&) {}
#endif
};

Fibers::Fibers(std::function<void()> work) : work_(std::move(work)) { fibers_.push_back(std::make_unique<Fiber>()); }

Fibers::~Fibers() {
  ending_ = true;
  for (size_t i = 1; i < fibers_.size(); ++i) SwitchTo(static_cast<int>(i));
}

void Fibers::Arrive(Fiber& here) { here.Enter(fiber(came_from_)); }

int Fibers::Add() {
  const int index = static_cast<int>(fibers_.size());
  fibers_.push_back(std::make_unique<Fiber>());
  Stacks stacks;
  boost::context::stack_context stack = stacks.allocate();
  fiber(index).bytes = stack.size;
  fiber(index).bottom = static_cast<const char*>(stack.sp) - stack.size;
  // Not all at the same place of their pages, so that they do not want the same lines of the cache.
  const size_t shift = static_cast<size_t>(index) % 32 * 128;
  const boost::context::preallocated place(static_cast<char*>(stack.sp) - shift, stack.size - shift, stack);
  fiber(index).suspended =
      boost::context::fiber(std::allocator_arg, place, stacks, [this, index](boost::context::fiber&& caller) {
        Arrive(fiber(index));
        fiber(came_from_).suspended = std::move(caller);
        while (!ending_) work_();
        fiber(index).Leave(fiber(0), true);
        came_from_ = std::exchange(current_, 0);
        return std::move(fiber(0).suspended);
      });
  return index;
}

void Fibers::SwitchTo(int to) {
  Fiber& here = fiber(current_);
  came_from_ = std::exchange(current_, to);
  here.Leave(fiber(to), false);
  boost::context::fiber caller = std::move(fiber(to).suspended).resume();
  Arrive(here);
  fiber(came_from_).suspended = std::move(caller);  // empty where the fiber has ended
}

}  // namespace moed::emulation
