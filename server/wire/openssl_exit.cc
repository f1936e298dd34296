#include "server/wire/openssl_exit.h"

#include <openssl/crypto.h>

namespace moed {

void ExitWithoutOpenSsl() { OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr); }

}  // namespace moed
