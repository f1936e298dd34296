// What is resident, for those who may only ask.
#pragma once

#include "core/base/ids.h"

namespace moed {

// Answers of this moment, at the cost of a look into a table. All of one moment where the cache's lock is held, as while a rule
// decides; else a read may end and a record leave between two of them. Valid during the call it is passed to.
class ResidencyView {
 public:
  virtual ~ResidencyView() = default;
  virtual bool Resident(CachedKey key) const = 0;
  virtual bool Loading(CachedKey key) const = 0;  // queued or reading
};

}  // namespace moed
