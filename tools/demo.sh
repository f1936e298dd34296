#!/usr/bin/env bash
# From a fresh machine to streamed tokens: installs, builds, packs the demo checkpoint, serves it within a budget far below its size.
# usage: demo.sh [PROMPT]
set -euo pipefail
cd "$(dirname "$0")/.."

prompt=${1:-"Once upon a time there was a little"}
bin=build/release/bin
checkpoint=models/tales-qwen
store=build/demo/tales-qwen.moed
budget=14MiB   # of a 33 MiB store: the trunk takes 5 MiB, the experts 27 MiB

say() { printf '\n== %s\n' "$*"; }

say "packages"
bash tools/packages.sh build
say "build (release)"
bash tools/build.sh release -DMOED_BUILD_TESTS=OFF -- moed moectl moed-pack

if [ ! -f "$store" ]; then
  say "pack $checkpoint"
  mkdir -p "$(dirname "$store")"
  "$bin/moed-pack" "$checkpoint" "$store" --expert-formats bf16 --trunk-format bf16
fi

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

say "stop (SIGTERM)"
kill -TERM "$daemon"
wait "$daemon" && echo "moed drained and ended"
trap - EXIT
