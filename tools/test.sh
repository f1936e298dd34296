#!/usr/bin/env bash
# Installs what the tests need, builds everything, runs all tests. usage: test.sh [ctest options...]
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/phase.sh

phase packages bash tools/packages.sh test
phase includes bash tools/check_includes.sh
phase documents /usr/bin/python3 tools/check_docs.py
phase build bash tools/build.sh release -DMOED_BUILD_TESTS=ON -DMOED_BATCHES=ON --
phase tests ctest --preset release -j 3 --output-log build/release/tests.log --output-junit tests.xml --test-output-size-passed 1000000 "$@"
