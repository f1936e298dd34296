// What a device's queue can wait for. Whoever brings bytes to the device makes it, the compute backend of the device knows what
// it is; to all others it is opaque.
#pragma once

namespace moed {

class ReadyEvent;

}  // namespace moed
