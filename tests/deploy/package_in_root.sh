#!/bin/sh
# Within a fresh Debian 12 whose /tmp/packages has the packages and /tmp/tales-qwen the demo checkpoint: installs, serves, removes, and
# leaves nothing. /tmp/answer is what was streamed.
set -eu
export DEBIAN_FRONTEND=noninteractive

apt-get install -y -q --no-install-recommends /tmp/packages/*.deb >/tmp/apt.log 2>&1 || { cat /tmp/apt.log; exit 1; }
getent passwd moed moed-http >/dev/null
[ -d /var/lib/moed ]
[ ! -e /etc/systemd/system/multi-user.target.wants/moed.service ]  # nobody has enabled it
if ldd /usr/bin/moed /usr/bin/moed-http /usr/bin/moectl /usr/bin/moed-pack /usr/bin/moed-plan | grep 'not found'; then exit 1; fi

# As the unit starts it: its user, its file of settings, which names the store.
moed-pack /tmp/tales-qwen /var/lib/moed/model.moed --expert-formats q8 >/dev/null
sed -n '/^MOED_/p' /etc/moed/moed.env >/tmp/environment
setpriv --reuid moed --regid moed --clear-groups --no-new-privs \
    env $(cat /tmp/environment) MOED_LISTEN=unix:/tmp/moed.socket MOED_METRICS_LISTEN=off MOED_MEMORY_BUDGET=64MiB MOED_DRAIN_DELAY_SECONDS=0 \
    moed >/tmp/moed.log 2>&1 &
daemon=$!
trap 'cat /tmp/moed.log >&2; kill "$daemon"' EXIT
until moectl --server unix:/tmp/moed.socket --connect-timeout 60 health >/dev/null 2>&1; do kill -0 "$daemon"; sleep 0.1; done  # it loads
moectl --server unix:/tmp/moed.socket generate --prompt "Once upon a time" --max-new-tokens 16 --ignore-eos --temperature 0 >/tmp/answer
trap - EXIT
kill -TERM "$daemon"
wait "$daemon"

apt-get purge -y -q moed moed-tools >/tmp/apt.log 2>&1 || { cat /tmp/apt.log; exit 1; }
[ -f /var/lib/moed/model.moed ]  # people's own
left=$(find / -xdev \( -path /tmp -o -path /proc -o -path /var/lib/moed -o -path /var/lib/apt -o -path /var/cache \) -prune \
    -o \( -name 'moed*' -o -name moectl \) -print)
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
