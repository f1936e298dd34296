// SIGINT and SIGTERM as a question that long loops ask.
#pragma once

namespace moed {

// From now on the first signal only raises the flag; a second one ends the process as usual.
void CatchInterrupts();
bool Interrupted();

}  // namespace moed
