#!/usr/bin/env bash
# The checks of style, after tools/test.sh: format, types of the Python, and what the tests printed. usage: check.sh
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/phase.sh

phase packages bash tools/packages.sh check
phase format bash tools/check_format.sh
phase python bash tools/check_python.sh
phase "nothing but their runner's lines" /usr/bin/python3 tools/check_quiet.py build/release/tests.xml
