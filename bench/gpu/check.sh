#!/usr/bin/env bash
# Holds the compute backend "cuda" against the processor on a machine with a CUDA device, and measures it: ten minutes at most.
# usage: check.sh [--emulated] [--store FILE] | check.sh --pack FOLDER
#   --emulated     exactness alone, of the kernels in emulation: needs no device
#   --store FILE   decodes with this store: on the processor, and on the device with experts there, in the host's memory and on disk
#   --pack FOLDER  builds what is needed and puts it there with its libraries, for a machine that has neither; then FOLDER/check.sh there
# Writes report.json, report.md and a log of each step to build/gpu. Ends with 1 where a step failed or no device is usable.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
programs=(tests/cuda_kernels_test tests/kernels_test bin/product_bandwidth bin/decode_bandwidth)

pack() {
  local to=$1
  cd "$here/../.."
  cmake --preset release >/dev/null
  cmake --build --preset release --target "${programs[@]##*/}"
  mkdir -p "$to/bin" "$to/lib" "$to/tests"
  install -m 755 "$here/check.sh" "$to"
  for program in "${programs[@]}"; do install -s "build/release/$program" "$to/$program"; done
  # The C library is the other machine's.
  ldd "${programs[@]/#/$to/}" | awk '/=> \//{print $3}' | sort -u | grep -vE '/(libc|libm|libdl|librt|libpthread)\.so' |
    xargs -I{} cp -L {} "$to/lib"
}

emulated=false store=
while [ $# -gt 0 ]; do
  case "$1" in
    --emulated) emulated=true ;;
    --store) store=$(realpath "${2:?}"); shift ;;
    --pack) pack "${2:?}"; exit ;;
    *) sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2 ;;
  esac
  shift
done

if [ -d "$here/lib" ]; then
  programs_at=$here
  export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
  cd "$here/../.."
  programs_at=build/release
fi
out=build/gpu
rm -rf "$out"
mkdir -p "$out"
json=() table=() failed=false

note() {  # NAME STATE WHAT
  json+=("\"$1\": {\"state\": \"$2\", \"what\": \"${3//\"/\'}\"}")
  table+=("| $1 | $2 | $3 |")
  printf '%-22s %s: %s\n' "$@"
  [ "$2" != failed ] || failed=true
}
# step NAME SECONDS COMMAND...: what it printed is its log; `said` is the log's last line.
step() {
  local log=$out/$1.log
  timeout "$2" "${@:3}" >"$log" 2>&1 && said=$(tail -n 1 "$log") && return 0
  said=$(tail -n 1 "$log")
  return 1
}
# exact NAME PROGRAM FILTER: at least one test, none failed, none skipped.
exact() {
  if ! step "$1" 240 "${@:4}" "$programs_at/tests/$2" --gtest_filter="$3"; then
    note "$1" failed "$said"
  elif grep -q '^\[==========\] 0 tests' "$out/$1.log" && [ "$1" = backend ]; then
    note "$1" "left out" "the device does not read the memory that these tests keep"
  elif grep -qE '^\[  SKIPPED|^\[==========\] 0 tests' "$out/$1.log"; then
    note "$1" failed "tests did not run: $(grep -cE '^\[  SKIPPED' "$out/$1.log") were skipped"
  else
    note "$1" passed "${said#\[  PASSED  \] }"
  fi
}
decode() {  # NAME FLAGS...
  if step "$1" 120 "$programs_at/bin/decode_bandwidth" "$store" --turns 3 "${@:2}"; then
    note "$1" measured "$(tr -s ' ' <<<"$said")"
  elif [[ "$said" == *"nothing is copied"* ]]; then
    note "$1" "left out" "$said"
  else
    note "$1" failed "$said"
  fi
}

if $emulated; then
  exact kernels-emulated cuda_kernels_test '*emulated'
  exact backend-emulated kernels_test '*cuda_emulated*'
elif ! step products 180 "$programs_at/bin/product_bandwidth" --json "$out/products.json"; then
  note device refused "$said"
  failed=true
else
  note device passed "$(head -n 1 "$out/products.log")"
  json+=("\"products\": $(cat "$out/products.json")")
  exact kernels cuda_kernels_test '*device'
  if command -v compute-sanitizer >/dev/null; then
    exact sanitizer cuda_kernels_test '*Products*/device:*KeysAndValues/device:*Latents/device' compute-sanitizer --error-exitcode 9
  else
    note sanitizer "left out" "compute-sanitizer is not there"
  fi
  usable=$("$programs_at/bin/product_bandwidth" --usable 2>&1) && refused=false || refused=true
  if $refused; then
    note backend refused "$usable"
  else
    exact backend kernels_test '*/cuda:*/cuda_*:-*emulated*'
    if [ -n "$store" ]; then
      decode decode-on-processor --backend auto
      decode decode-over-the-bus --backend cuda
      decode decode-on-device --backend cuda --device-share 1.1
      decode decode-half-on-device --backend cuda --device-share 0.5
      decode decode-half-beside-processor --backend cuda --device-share 0.5 --processor
      decode decode-from-disk --backend cuda --device-share 0.25 --cache-share 0.25
    fi
  fi
fi

printf -v body ',\n %s' "${json[@]}"
printf '{\n %s\n}\n' "${body:3}" >"$out/report.json"
{ printf '| step | state | |\n|---|---|---|\n'; printf '%s\n' "${table[@]}"; } >"$out/report.md"
[ ! -e "$out/products.log" ] || { printf '\n'; cat "$out/products.log"; } >>"$out/report.md"
! $failed
