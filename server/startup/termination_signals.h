// SIGTERM and SIGINT: the first one asks for a drain, the second one ends the process at once, unless it
// comes within 20 ms of the first. SIGHUP: files are to be read anew.
#pragma once

#include <functional>

namespace moed {

// Blocks these signals for the calling thread and those it starts. Before any other thread.
void BlockTerminationSignals();

// Starts the thread that waits for them; it lives as long as the process. `drain` returns false when there is nothing to drain
// (still loading): then the process ends at once. A process ended by a signal has the exit code 128 + its number. `reload` is
// called at each SIGHUP, also during a drain.
void WatchTerminationSignals(std::function<bool()> drain, std::function<void()> reload);

}  // namespace moed
