#!/usr/bin/env bash
# Installs what the tests need, builds everything, runs all tests. usage: test.sh [ctest options...]
set -euo pipefail
cd "$(dirname "$0")/.."

bash tools/packages.sh test
bash tools/check_includes.sh
bash tools/build.sh release -DMOED_BUILD_TESTS=ON --
ctest --preset release -j 2 "$@"
