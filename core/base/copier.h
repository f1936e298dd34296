// Copies between the host's memory and a device's, beside what the device computes: a queue of its own.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/ready_event.h"

namespace moed {

// Thread contract: one call at a time, Wait as well. What goes wrong with a copy is told by the device's next wait, whoever
// waits.
class Copier {
 public:
  virtual ~Copier() = default;  // its copies have run before

  // Copies run one after the other, in the order of their calls. Both pieces are the copy's until it has run.
  virtual void Copy(void* to, const void* from, size_t bytes) = 0;
  virtual absl::StatusOr<std::unique_ptr<ReadyEvent>> MakeEvent() = 0;
  // Another queue, for the other direction: a bus takes both at once.
  virtual absl::StatusOr<std::unique_ptr<Copier>> MakeAnother() = 0;
  // The place behind all copies until now.
  virtual void Record(ReadyEvent& event) = 0;
  // Copies from here on run after those before the event as it was recorded last, of whichever queue.
  virtual void Await(const ReadyEvent& event) = 0;
  // Returns when the copies before the event have run, or never will.
  virtual absl::Status Wait(const ReadyEvent& event) = 0;
};

}  // namespace moed
