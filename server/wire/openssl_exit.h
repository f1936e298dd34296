// OpenSSL's own end, at exit(3), takes away what gRPC's threads may be shaking hands with: the process then ends by SIGSEGV.
#pragma once

namespace moed {

// Called before anything of gRPC, the process ends without that; the kernel frees the memory.
void ExitWithoutOpenSsl();

}  // namespace moed
