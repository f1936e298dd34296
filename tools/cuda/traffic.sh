#!/usr/bin/env bash
# Counts, in emulation, how the CUDA kernels reach memory at the shapes of released models. Needs no GPU and no nvcc.
# usage: traffic.sh [--write]
#   --write  put the tables into docs/cuda.md; otherwise they are printed
set -euo pipefail
cd "$(dirname "$0")/../.."

case "${1:-}" in
  "" | --write) ;;
  *) echo "usage: $0 [--write]" >&2; exit 2 ;;
esac
bash tools/build.sh release -DMOED_BUILD_TESTS=ON -- cuda_traffic >&2
tables=$(build/release/tests/cuda_traffic)
if [ "${1:-}" = --write ]; then
  /usr/bin/python3 tools/cuda/replace_table.py docs/cuda.md "traffic.sh --write" <<<"$tables"
else
  printf '%s\n' "$tables"
fi
