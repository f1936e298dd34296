#!/usr/bin/env bash
# The checks after tools/test.sh: format, types of the Python, what nvcc makes of the CUDA kernels where it can be had, and what
# the tests printed. usage: check.sh
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/phase.sh

phase packages bash tools/packages.sh check
phase format bash tools/check_format.sh
phase python bash tools/check_python.sh
phase "cuda kernels" bash tools/cuda/compile.sh --fetch
phase "nothing but their runner's lines" /usr/bin/python3 tools/check_quiet.py build/release/tests.xml
