#!/usr/bin/env bash
# Runs every target of tests/fuzz, two at a time, each from its corpus: all together for SECONDS, or each N times.
# usage: fuzz.sh SECONDS|--runs N [TARGET...]
# An input that does harm is left in build/check/fuzz/found; once mended it belongs into tests/fuzz/corpus/TARGET.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=''; seconds=''
if [ "${1:?usage: $0 SECONDS|--runs N [TARGET...]}" = --runs ]; then runs=$2; shift 2; else seconds=$1; shift; fi
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(basename -a -s .cc $(grep -l LLVMFuzzerTestOneInput tests/fuzz/*.cc))
limit=-runs=$runs
[ -n "$runs" ] || limit=-max_total_time=$(((seconds * 2 + ${#targets[@]} - 1) / ${#targets[@]}))
memory=/dev/shm  # many small files
[ -w "$memory" ] || memory=${TMPDIR:-/tmp}
found=$PWD/build/check/fuzz/found
mkdir -p "$found"

one() {
  local target=$1 log=build/check/fuzz/$1.log scratch status=0
  scratch=$(mktemp -d -p "$memory")
  mkdir "$scratch"/{files,inputs}
  TMPDIR=$scratch/files LSAN_OPTIONS=suppressions=$PWD/tools/sanitizers/leaks.supp build/check/fuzz/fuzz_"$target" "$scratch/inputs" \
    tests/fuzz/corpus/"$target" -seed=1 "$limit" -timeout=10 -rss_limit_mb=2048 \
    -artifact_prefix="$found/$target-" >"$log" 2>&1 || status=$?
  rm -rf "$scratch"
  if [ "$status" != 0 ]; then
    cat "$log"
    echo "fuzz_$target failed"
    return 255  # ends xargs
  fi
  printf '%-22s %s\n' "$target" "$(grep -o 'Done.*' "$log" | tail -n 1)"
}
export -f one
export limit found memory
printf '%s\n' "${targets[@]}" | xargs -P 2 -I{} bash -c 'one {}'
