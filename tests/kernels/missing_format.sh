#!/usr/bin/env bash
# A format that stands in the enumeration alone does not compile: FILE, which has a row for every format, is refused and the
# refusal names the format. usage: missing_format.sh COMPILER ROOT FILE [options...]
set -euo pipefail
compiler=$1 root=$2 file=$3; shift 3
overlay=$(mktemp -d); trap 'rm -rf "$overlay"' EXIT
mkdir -p "$overlay/core/quant"
header=core/quant/format_id.h
compile() { "$compiler" -std=c++20 -fsyntax-only "$@" -I "$overlay" -I "$root" "$root/$file"; }

cp "$root/$header" "$overlay/$header"
compile "$@" || { echo "$file does not compile as it is"; exit 1; }

sed 's/^  kEnd$/  kToy,\n  kEnd/' "$root/$header" >"$overlay/$header"
grep -q kToy "$overlay/$header"
number=$(grep -c '^  k[A-Za-z0-9_]* = ' "$root/$header")
if compile "$@" 2>"$overlay/errors"; then
  echo "$file compiles without a row for the format kToy"
  exit 1
fi
grep -q "kToy\|FormatId)$number\|every format of FormatId has a row" "$overlay/errors" || { cat "$overlay/errors"; exit 1; }
