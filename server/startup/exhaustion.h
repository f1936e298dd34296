// The end where the machine has no more memory or threads and nobody could be told.
#pragma once

namespace moed {

// An exception that nobody catches, of an allocation or of a thread that cannot be made, ends the process with a line that says
// so and status 1. Every other one ends it as before, by SIGABRT. Requests have a boundary of their own, which is not this one.
void NameExhaustion();

}  // namespace moed
