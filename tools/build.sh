#!/usr/bin/env bash
# Configures and builds one preset. usage: build.sh PRESET [cmake options...] -- [targets...]
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:?usage: $0 PRESET [cmake options...] -- [targets...]}; shift
options=(); targets=()
while [ $# -gt 0 ] && [ "$1" != "--" ]; do options+=("$1"); shift; done
[ $# -gt 0 ] && shift
for target in "$@"; do targets+=(--target "$target"); done
cmake --preset "$preset" "${options[@]}" >/dev/null
cmake --build --preset "$preset" "${targets[@]}"
