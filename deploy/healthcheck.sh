#!/bin/sh
# HEALTHCHECK of the image: whether what the container runs serves. That is the daemon, at --listen of its command line or else at
# MOED_LISTEN, with TLS as MOECTL_TLS_CA and MOECTL_TLS_NAME say; or `moed run`, which serves on a socket of its own once the model is packed;
# or moed-http, which says so at /healthz. Where that speaks TLS it has to take a connection. $1: the container's first process [1].
set -eu

for socket in "${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}"/moed-run-*/moed; do
    if [ -S "$socket" ]; then exec moectl --server "unix:$socket" --connect-timeout 3 health; fi
done
words=$(tr '\0' '\n' < "/proc/${1:-1}/cmdline")
# An init may stand before it.
program=$(echo "$words" | sed -n -e 's,.*/,,' -e '/^moed\(-http\)\{0,1\}$/{p;q;}')

# How this container reaches --listen, or else $1.
address() {
    listen=$(echo "$words" | sed -n -e 's/^--listen=//p' -e '/^--listen$/{n;p;}')
    listen=${listen:-$1}
    case $listen in
    0.0.0.0:*) listen=127.0.0.1:${listen##*:} ;;
    '[::]':*) listen="[::1]:${listen##*:}" ;;
    esac
    echo "$listen"
}

if [ "$program" = moed-http ]; then
    listen=$(address "${MOED_HTTP_LISTEN:-127.0.0.1:8080}")
    host=$(echo "${listen%:*}" | tr -d '[]')
    tls=$(echo "$words" | sed -n '/^--tls-cert/p')
    # Sockets are bash's, not sh's.
    # shellcheck disable=SC2016
    exec bash -c '
        exec 3<>"/dev/tcp/$1/$2" || exit 1
        [ -z "$3" ] || exit 0
        printf "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" >&3
        read -r -t 3 _ status _ <&3 && [ "$status" = 200 ]' check "$host" "${listen##*:}" "${tls:-${MOED_HTTP_TLS_CERT:-}}"
fi
case $(echo "$words" | tr '\n' ' ') in
*moed\ run\ *)
    echo "moed run does not serve yet"
    exit 0
    ;;
esac
exec moectl --server "$(address "${MOED_LISTEN:-127.0.0.1:50051}")" --connect-timeout 3 health
