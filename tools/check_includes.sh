#!/usr/bin/env bash
# Holds every include against the tables of docs/architecture.md; check_includes.py says how.
set -euo pipefail
exec /usr/bin/python3 "$(dirname "$0")/check_includes.py" "$@"
