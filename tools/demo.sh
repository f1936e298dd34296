#!/usr/bin/env bash
# From a fresh machine to streamed tokens: installs, builds, packs a demo model, serves it within a budget far below its size.
# usage: demo.sh [--large] [PROMPT]
# --large: the demo model widened to 4 billion parameters. Run again, it goes on where it was stopped.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=build/release/bin
checkpoint=models/tales-qwen
store=build/demo/tales-qwen.moed
pack_flags=(--expert-formats bf16 --trunk-format bf16)
budget=14MiB   # of a 33 MiB store: the trunk takes 5 MiB, the experts 27 MiB
factor=1
if [ "${1:-}" = --large ]; then
  shift
  store=build/demo/tales-qwen-x16.moed
  pack_flags=(--expert-formats q4 --trunk-format q4)
  budget=900MiB  # of a 2.1 GiB store: the trunk takes 243 MiB
  factor=16
  disk_bytes=10600000000  # 8.2 GB widened in bf16, deleted once packed, and the store's 2.3 GB
fi
case "${1:-}" in -*) echo "usage: $0 [--large] [PROMPT]" >&2; exit 2 ;; esac
prompt=${1:-"Once upon a time there was a little"}

say() { printf '\n== %s\n' "$*"; }

widen() {
  local free
  free=$(df --output=avail -B1 build/demo | tail -n 1)
  say "widen $checkpoint by $factor: needs $((disk_bytes / 1000000)) MB of disk, $((free / 1000000)) MB are free"
  [ "$free" -ge "$disk_bytes" ] || { echo "$0: too little disk below build/demo" >&2; exit 1; }
  bash tools/packages.sh widen
  /usr/bin/python3 tools/widen "$checkpoint" "$1" --factor "$factor"
}

say "packages"
bash tools/packages.sh build
say "build (release)"
bash tools/build.sh release -DMOED_BUILD_TESTS=OFF -DMOED_BATCHES=ON -- moed moectl moed-pack

if [ ! -f "$store" ]; then
  mkdir -p build/demo
  if [ "$factor" -gt 1 ]; then
    wide=build/demo/tales-qwen-x$factor
    [ -d "$wide" ] || widen "$wide"
    checkpoint=$wide
  fi
  say "pack $checkpoint"
  "$bin/moed-pack" "$checkpoint" "$store" "${pack_flags[@]}"
fi
[ "$factor" -eq 1 ] || rm -rf "build/demo/tales-qwen-x$factor"

say "serve with --memory-budget $budget"
log=build/demo/moed.log
"$bin/moed" --store "$store" --memory-budget "$budget" --listen 127.0.0.1:0 --metrics-listen off >"$log" 2>&1 &
daemon=$!
trap 'kill "$daemon" 2>/dev/null; wait "$daemon" 2>/dev/null || true' EXIT
address=
for _ in $(seq 100); do
  address=$(sed -n 's/.*listening on \(127\.0\.0\.1:[0-9]*\).*/\1/p' "$log" | head -n 1)
  [ -n "$address" ] && "$bin/moectl" --server "$address" health >/dev/null 2>&1 && break
  kill -0 "$daemon" 2>/dev/null || { cat "$log" >&2; exit 1; }
  sleep 0.1
done
grep -A 12 "memory plan" "$log" || true

say "stream an answer"
"$bin/moectl" --server "$address" generate --prompt "$prompt" --max-new-tokens 96 --temperature 0.7 --top-p 0.9 --seed 3 --ignore-eos
awk '/VmHWM/ { printf "peak memory of moed: %d MiB\n", $2 / 1024 }' "/proc/$daemon/status"

say "stop (SIGTERM)"
kill -TERM "$daemon"
wait "$daemon" && echo "moed drained and ended"
trap - EXIT
