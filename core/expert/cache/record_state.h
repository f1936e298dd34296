// What a record of the cache goes through, and what a lookup of it is called meanwhile.
//
//    lookup: miss              late                 late                        hit
//    +--------+  begun   +--------+  its turn  +---------+  all was right  +----------+
//    | absent | -------> | queued | ---------> | reading | --------------> | resident |
//    +--------+          +--------+            +---------+                 +----------+
//       ^  ^                 | cancelled            | an error, a wrong        |
//       |  |                 v                      v checksum                 |
//       |  |               +--------------------------+                        |
//       |  +-------------- |          failed          |                        |
//       |    its last pin  +--------------------------+                        |
//       +----------------------------------------------------------------------+
//                        evicted, without pins; a bypass: with its last pin
//
// begun      for a demand (the layer wants it), a guess (a later layer may) or a fill (room was free). Demands that find no room
//            wait, absent, for a pin to be dropped or a read to end. While one waits no guess is begun, and while anything is
//            read or waits no fill. Queued and reading are one state here: the read queue alone knows which reads are in flight.
// late       the layer joins the read: its pin, its waiting, no second read. What was queued behind the demands is promoted.
// cancelled  a queued guess whose layer has passed, or whose room a demand needs. Wanted after all, it waits as a demand.
// pins       of the layer that wants it until it is handed out, then of the handle. What is pinned stays where it is.
// bypass     the policy refused it: it is read into a reserve, used once, and known to nobody.
// failed     its key is absent at once, so that the next demand reads again; its pins keep what had arrived.
// A guess ends as used (hit), late, cancelled or wasted: failed, or evicted before anyone wanted it. A fill that nobody has used
// leaves before anything else; the policy hears of it at its first use.
#pragma once

#include <cstdint>

namespace moed {

enum class RecordState : uint8_t { kAbsent, kLoading, kResident, kFailed };  // kLoading: queued or reading

}  // namespace moed
