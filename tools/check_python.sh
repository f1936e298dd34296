#!/usr/bin/env bash
# Checks style, format and types of all Python of the repository as pyproject.toml says. usage: check_python.sh [--fix]
# Needs python3-venv (tools/packages.sh check) and, the first time, PyPI. Says nothing when all is well; --fix mends what can be.
set -euo pipefail
cd "$(dirname "$0")/.."

versions=(ruff==0.17.6 mypy==2.4.1 numpy==2.2.6)  # numpy for its annotations
venv=build/check_python/venv
fix=false
case "${1:-}" in
  "") ;;
  --fix) fix=true ;;
  *) echo "usage: $0 [--fix]" >&2; exit 2 ;;
esac

if [ "$(cat "$venv/versions" 2>/dev/null)" != "${versions[*]}" ]; then
  rm -rf "$venv"
  /usr/bin/python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "${versions[@]}"
  echo "${versions[*]}" >"$venv/versions"
fi

export RUFF_CACHE_DIR=build/check_python/ruff
if $fix; then
  "$venv/bin/ruff" check --quiet --fix-only .
  "$venv/bin/ruff" format --quiet .
fi
status=0
"$venv/bin/ruff" check --quiet . || status=1
"$venv/bin/ruff" format --quiet --diff . || status=1
"$venv/bin/mypy" --no-error-summary || status=1
exit $status
