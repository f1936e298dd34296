// What a device's queue can wait for: a place in the work of another queue of the device. Whoever brings bytes to the device
// records it, the compute backend of the device knows what it is.
#pragma once

namespace moed {

class ReadyEvent {
 public:
  virtual ~ReadyEvent() = default;
  // Whether all work before the last time it was recorded has run; true where there was none. Without waiting.
  virtual bool Ready() const = 0;
};

}  // namespace moed
