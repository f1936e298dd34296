#!/usr/bin/env bash
# Counts what the product kernels of few tokens issue for each weight. Needs no GPU, and what tools/cuda/compile.sh left.
# usage: instructions.sh [--fetch] [--write]
#   --fetch  where there is no cuobjdump, take NVIDIA's from PyPI (6 MB) into build/cuda/toolkit
#   --write  put the table into docs/cuda.md; otherwise it is printed
set -euo pipefail
cd "$(dirname "$0")/../.."

cubin=build/cuda/kernels.sm_90.cubin
wheels=(nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm)
out=build/cuda

fetch=false write=false
for argument in "$@"; do
  case "$argument" in
    --fetch) fetch=true ;;
    --write) write=true ;;
    *) echo "usage: $0 [--fetch] [--write]" >&2; exit 2 ;;
  esac
done

[ -f "$cubin" ] || { echo "no $cubin: run tools/cuda/compile.sh" >&2; exit 1; }
cuobjdump=$(command -v cuobjdump || true)
[ -n "$cuobjdump" ] || cuobjdump=$out/toolkit/nvidia/cu13/bin/cuobjdump
if [ ! -x "$cuobjdump" ] && $fetch; then
  /usr/bin/python3 -m venv "$out/venv"
  "$out/venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 --target "$out/toolkit" "${wheels[@]/%/==13.*}"
fi
[ -x "$cuobjdump" ] || { echo "no cuobjdump: run $0 --fetch" >&2; exit 1; }
"$cuobjdump" -sass "$cubin" >"$out/kernels.sm_90.sass"
table=$(/usr/bin/python3 tools/cuda/count_instructions.py "$out/kernels.sm_90.sass")
if $write; then
  /usr/bin/python3 tools/cuda/replace_table.py docs/cuda.md "instructions.sh --write" <<<"$table"
else
  printf '%s\n' "$table"
fi
