#!/usr/bin/env bash
# Holds all C++ of the repository against .clang-format. usage: check_format.sh [--fix]
set -euo pipefail
cd "$(dirname "$0")/.."

how=(--dry-run -Werror)
case "${1:-}" in
  "") ;;
  --fix) how=(-i) ;;
  *) echo "usage: $0 [--fix]" >&2; exit 2 ;;
esac
git ls-files -z --cached --others --exclude-standard '*.h' '*.cc' | xargs -0 -n 50 -P 2 clang-format "${how[@]}"
