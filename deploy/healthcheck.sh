#!/bin/sh
# HEALTHCHECK of the image: whether what the container runs serves. That is the daemon, at --listen of its command line or else at
# MOED_LISTEN, with TLS as MOECTL_TLS_CA and MOECTL_TLS_NAME say; or `moed run`, which serves on a socket of its own once the model is packed. $1: the container's first process [1].
set -eu

for socket in "${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}"/moed-run-*/moed; do
    if [ -S "$socket" ]; then exec moectl --server "unix:$socket" --connect-timeout 3 health; fi
done
words=$(tr '\0' '\n' < "/proc/${1:-1}/cmdline")
case $(echo "$words" | tr '\n' ' ') in
*moed\ run\ *)
    echo "moed run does not serve yet"
    exit 0
    ;;
esac
listen=$(echo "$words" | sed -n -e 's/^--listen=//p' -e '/^--listen$/{n;p;}')
listen=${listen:-${MOED_LISTEN:-127.0.0.1:50051}}
case $listen in
0.0.0.0:*) listen=127.0.0.1:${listen##*:} ;;
'[::]':*) listen="[::1]:${listen##*:}" ;;
esac
exec moectl --server "$listen" --connect-timeout 3 health
