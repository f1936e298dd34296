#!/usr/bin/env bash
# Holds the compute backend "cuda" against the processor on a machine with a CUDA device, and measures it: ten minutes at most.
# usage: check.sh [--emulated] [--store FILE] [--llama-bench PROGRAM --gguf FILE] | check.sh --pack FOLDER
#   --emulated     exactness alone, of the kernels in emulation: needs no device
#   --store FILE   decodes with this store: on the processor, and on the device with experts there, in the host's memory and on disk.
#                  And the daemon serves it with both: the same answer
#   --llama-bench PROGRAM --gguf FILE  llama.cpp's own, built with CUDA, decodes the same model's file in the same run
#   --pack FOLDER  builds what is needed and puts it there with its libraries, for a machine that has neither; then FOLDER/check.sh there
# Writes report.json, report.md and a log of each step to build/gpu of the folder that it is called in, or of the repository. Ends
# with 1 where a step failed or no device is usable. What the ten minutes do not reach is left out by name.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
programs=(tests/cuda_kernels_test tests/kernels_test bin/product_bandwidth bin/decode_bandwidth bin/moed bin/moectl)

pack() {
  local to=$1
  cd "$here/../.."
  cmake --preset release -DMOED_BUILD_TESTS=ON >/dev/null
  cmake --build --preset release --target "${programs[@]##*/}"
  mkdir -p "$to/bin" "$to/lib" "$to/tests"
  install -m 755 "$here/check.sh" "$to"
  for program in "${programs[@]}"; do install -s "build/release/$program" "$to/$program"; done
  # The C library is the other machine's: glibc as new as here.
  ldd "${programs[@]/#/$to/}" | awk '/=> \//{print $3}' | sort -u | grep -vE '/(libc|libm|libdl|librt|libpthread)\.so' |
    xargs -I{} cp -L {} "$to/lib"
}

emulated=false store='' llama='' gguf=''
while [ $# -gt 0 ]; do
  case "$1" in
    --emulated) emulated=true ;;
    --store) store=$(realpath "${2:?}"); shift ;;
    --llama-bench) llama=$(realpath "${2:?}"); shift ;;
    --gguf) gguf=$(realpath "${2:?}"); shift ;;
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
for program in "${programs[@]}"; do
  [ -x "$programs_at/$program" ] || { echo "$programs_at/$program is not there: build it, or bash $0 --pack FOLDER" >&2; exit 1; }
done
out=build/gpu
rm -rf "$out"
mkdir -p "$out"
json=() table=() failed=false

note() {  # NAME STATE WHAT
  local what
  what=$(tr -d '[:cntrl:]' <<<"${3//\\/}" | tr '"|' "'/")
  json+=("\"$1\": {\"state\": \"$2\", \"what\": \"$what\"}")
  table+=("| $1 | $2 | $what |")
  printf '%-22s %s: %s\n' "$1" "$2" "$what"
  [ "$2" != failed ] || failed=true
}
# step NAME SECONDS COMMAND...: what it printed is its log; `said` is the log's last line, or that there was no time. 2: for none of it.
step() {
  local log=$out/$1.log limit=$2 left=$((570 - SECONDS)) status=0
  [ "$left" -ge "$limit" ] || limit=$left
  if [ "$limit" -le 0 ]; then
    said='the ten minutes are over'
    return 2
  fi
  timeout "$limit" "${@:3}" >"$log" 2>&1 || status=$?
  said=$(tail -n 1 "$log")
  [ "$status" -ne 124 ] || said="ran past $limit s; $said"
  [ "$status" -eq 0 ]
}
# exact NAME PROGRAM FILTER LEFT_OUT [COMMAND...]: at least one test, none failed. `LEFT_OUT` says why none may run, or all may be
# skipped; where it is empty both are failures.
exact() {
  local status=0 why=$4
  step "$1" 240 "${@:5}" "$programs_at/tests/$2" --gtest_filter="$3" || status=$?
  local none skipped
  none=$(grep -c '^\[==========\] 0 tests' "$out/$1.log" 2>/dev/null || true)
  skipped=$(grep -cE '^\[  SKIPPED \] [^0-9]*\(' "$out/$1.log" 2>/dev/null || true)
  if [ "$status" -eq 2 ]; then
    note "$1" "left out" "$said"
  elif [ "$status" -ne 0 ]; then
    note "$1" failed "$said"
  elif [ "$none" != 0 ] || [ "$skipped" != 0 ]; then
    if [ -n "$why" ]; then note "$1" "left out" "$why"; else note "$1" failed "tests did not run: $skipped were skipped"; fi
  else
    [[ "$said" != '[  PASSED  ] '* ]] || said=${said#'[  PASSED  ] '}
    note "$1" passed "$said"
  fi
}
# decode NAME FLAGS...: what is read a second of weights, as a share of what a copy on the device moves.
decode() {
  local status=0 log=$out/$1.log
  step "$1" 90 "$programs_at/bin/decode_bandwidth" "$store" --turns 3 --threads "$threads" "${@:2}" || status=$?
  if [ "$status" -eq 0 ]; then
    note "$1" measured "$(awk -v copy="$copy" '/^decode, GB/{rate = $3} /^steps/{steps = $0} /^tokens/{tokens = $2}
      END {printf "%s tokens/s, %s GB/s of weights, %.2f of the copy; %s", tokens, rate, rate / copy, steps}' "$log" | tr -s ' ')"
  elif [ "$status" -eq 2 ] || [[ "$said" == *"nothing is copied"* ]]; then
    note "$1" "left out" "$said"
  else
    note "$1" failed "$said"
  fi
}
llama_cpp() {
  local status=0
  step llama.cpp 90 "$llama" -m "$gguf" -ngl 999 -p 0 -n 64 -r 3 -o json || status=$?
  local rate
  rate=$(sed -n 's/.*"avg_ts": *\([0-9.]*\).*/\1/p' "$out/llama.cpp.log" 2>/dev/null | tail -n 1)
  if [ "$status" -eq 2 ]; then
    note llama.cpp "left out" "$said"
  elif [ "$status" -ne 0 ] || [ -z "$rate" ]; then
    note llama.cpp failed "$said"
  else
    note llama.cpp measured "$rate tokens/s"
  fi
}

# serve NAME FLAGS...: sets `answer` to what the daemon says with these flags; empty: it did not. The log has why.
serve() {
  local log=$out/$1.log address='' left=1800
  answer=''
  "$programs_at/bin/moed" --store "$store" --listen 127.0.0.1:0 --metrics-listen off "${@:2}" >"$log" 2>&1 &
  local daemon=$!
  while [ -z "$address" ] && [ "$left" -gt 0 ] && kill -0 "$daemon" 2>/dev/null; do
    sleep 0.1
    left=$((left - 1))
    grep -q ' ready: ' "$log" || continue
    address=$(sed -n 's/.*listening on \(127\.0\.0\.1:[0-9]*\).*/\1/p' "$log" | head -n 1)
  done
  if [ -n "$address" ]; then
    answer=$(timeout 60 "$programs_at/bin/moectl" --server "$address" generate --prompt 'Once upon a time' --max-new-tokens 64 \
      --temperature 0 --ignore-eos 2>>"$log") || true
  fi
  kill -TERM "$daemon" 2>/dev/null || true
  for _ in $(seq 100); do kill -0 "$daemon" 2>/dev/null || break; sleep 0.1; done
  kill -KILL "$daemon" 2>/dev/null || true
  wait "$daemon" || true
}
daemon_beside_processor() {
  serve daemon-on-processor --backend auto
  local expected=$answer
  serve daemon --backend cuda
  if [ -n "$answer" ] && [ "$answer" = "$expected" ]; then
    note daemon passed "the processor's answer"
  elif [ -n "$answer" ]; then
    note daemon failed "another answer than the processor's"
  else
    note daemon failed "$(grep -vE ' info ' "$out/daemon.log" | tail -n 1)"
    serve daemon-without-sandbox --backend cuda --sandbox off
    note daemon-without-sandbox "$([ -n "$answer" ] && echo passed || echo failed)" "$(tail -n 1 "$out/daemon-without-sandbox.log")"
  fi
}

threads=$(nproc)
[ "$threads" -le 256 ] || threads=256
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
if $emulated; then
  exact kernels-emulated cuda_kernels_test '*emulated' ''
  exact backend-emulated kernels_test '*cuda_emulated*' ''
elif ! "$programs_at/bin/product_bandwidth" --device >"$out/device.log" 2>&1; then
  note device refused "$(tail -n 1 "$out/device.log")"
  failed=true
else
  note device passed "$(head -n 1 "$out/device.log")"
  copy=$(sed -n 's/^copy on the device: \([0-9.]*\) GB.*/\1/p' "$out/device.log")
  exact kernels cuda_kernels_test '*device:-*Halves*' ''
  exact fast-matmul cuda_kernels_test '*Halves*device' 'there is no cuBLAS'
  if [ -n "$sanitizer" ]; then
    exact sanitizer cuda_kernels_test '*.Products/device:*KeysAndValues/device:*Latents/device' '' "$sanitizer" --error-exitcode 9
  else
    note sanitizer "left out" "compute-sanitizer is not there"
  fi
  if ! usable=$("$programs_at/bin/product_bandwidth" --usable 2>&1); then
    note backend refused "$usable"
    failed=true
  else
    exact backend kernels_test '*/cuda:*/cuda_*:-*emulated*' 'the device does not read the memory that these tests keep'
    if [ -n "$store" ]; then
      daemon_beside_processor
      decode decode-on-processor --backend auto
      decode decode-over-the-bus --backend cuda
      decode decode-on-device --backend cuda --device-share 1.1 --warm-tokens 512
      decode decode-half-on-device --backend cuda --device-share 0.5
      decode decode-half-beside-processor --backend cuda --device-share 0.5 --processor
      decode decode-from-disk --backend cuda --device-share 0.25 --cache-share 0.25
      decode decode-half-from-disk --backend cuda --cache-share 0.5
    fi
    if [ -n "$llama" ]; then llama_cpp; fi
  fi
  if step products 180 "$programs_at/bin/product_bandwidth" --json "$out/products.json"; then
    json+=("\"products\": $(cat "$out/products.json")")
    note product-kernels measured "see products"
  else
    note product-kernels failed "$said"
  fi
fi

printf -v body ',\n %s' "${json[@]}"
printf '{\n %s\n}\n' "${body:3}" >"$out/report.json"
{ printf '| step | state | |\n|---|---|---|\n'; printf '%s\n' "${table[@]}"; } >"$out/report.md"
[ ! -e "$out/products.log" ] || { printf '\n'; cat "$out/products.log"; } >>"$out/report.md"
! $failed
