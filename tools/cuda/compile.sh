#!/usr/bin/env bash
# Compiles every CUDA kernel for the architectures below and holds what the compiler made of them against the exact arithmetic.
# usage: compile.sh [--fetch] [--write]
#   --fetch  where there is no nvcc, take NVIDIA's from PyPI (372 MB) into build/cuda/toolkit
#   --write  put the table of registers and occupancy into docs/cuda.md
# Needs no GPU. Where there is no nvcc, and none can be fetched, it says so and ends well.
set -euo pipefail
cd "$(dirname "$0")/../.."

architectures=(sm_87 sm_90)  # Jetson AGX Orin; H100, H200
wheels=(nvidia-cuda-nvcc nvidia-nvvm nvidia-cuda-crt nvidia-cuda-runtime nvidia-cuda-cccl)
# The same bits as the processor's: nothing is fused, flushed or approximated that is not written so.
mapfile -t flags < core/kernels/device/nvcc_flags.txt
out=build/cuda

fetch=false write=false
for argument in "$@"; do
  case "$argument" in
    --fetch) fetch=true ;;
    --write) write=true ;;
    *) echo "usage: $0 [--fetch] [--write]" >&2; exit 2 ;;
  esac
done

mkdir -p "$out"
toolkit=$out/toolkit/nvidia/cu13
nvcc=$(command -v nvcc || true)
if [ -z "$nvcc" ] && [ ! -x "$toolkit/bin/nvcc" ] && $fetch; then
  /usr/bin/python3 -m venv "$out/venv" &&
    "$out/venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 --target "$out/toolkit" "${wheels[@]/%/==13.*}" || true
fi
[ -n "$nvcc" ] || nvcc=$toolkit/bin/nvcc
if [ ! -x "$nvcc" ]; then
  echo "no nvcc: the CUDA kernels were not compiled for devices"
  exit 0
fi

compile() {
  local name=$out/kernels.$1
  "$nvcc" "${flags[@]}" -I . -arch="$1" -ptx core/kernels/device/compiled_kernels.cu -o "$name.ptx"
  "$(dirname "$nvcc")/ptxas" -arch="$1" -v "$name.ptx" -o "$name.cubin" 2>"$name.log"
}
jobs=()
for architecture in "${architectures[@]}"; do compile "$architecture" & jobs+=($!); done
for job in "${jobs[@]}"; do wait "$job"; done
table=$(/usr/bin/python3 tools/cuda/inspect_kernels.py "$out" "${architectures[@]}" --table)
if $write; then /usr/bin/python3 tools/cuda/replace_table.py docs/cuda.md "compile.sh --write" <<<"$table"; fi
