// What is resident, for those who may only ask.
#pragma once

#include "core/base/ids.h"

namespace moed {

// A snapshot that costs nothing: queries under the cache's lock. Valid during the call it is passed to.
class ResidencyView {
 public:
  virtual ~ResidencyView() = default;
  virtual bool Resident(CachedKey key) const = 0;
  virtual bool Loading(CachedKey key) const = 0;  // queued or reading
};

}  // namespace moed
