#!/bin/sh
# HEALTHCHECK of the image: whether what the container runs serves. That is the daemon on the port of MOED_LISTEN, or `moed run`, which
# serves on a socket of its own once the model is packed.
set -eu

for socket in "${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}"/moed-run-*/moed; do
    if [ -S "$socket" ]; then exec moectl --server "unix:$socket" --connect-timeout 3 health; fi
done
case $(tr '\0' ' ' < /proc/1/cmdline) in
*moed\ run\ *)
    echo "moed run does not serve yet"
    exit 0
    ;;
esac
exec moectl --server "127.0.0.1:${MOED_LISTEN##*:}" --connect-timeout 3 health
