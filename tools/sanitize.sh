#!/usr/bin/env bash
# A second build of everything by clang with its analysis of locks, AddressSanitizer and UndefinedBehaviorSanitizer, in which the tests
# run again and the fuzzer for a minute. usage: sanitize.sh
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/phase.sh

# Test programs under sanitizers, but for those of tools/sanitizers/left_out.txt.
sanitized_tests() {
  cat tools/sanitizers/left_out.txt
  local left_out
  left_out=$(grep -v '^#' tools/sanitizers/left_out.txt | cut -d ' ' -f 1 | paste -s -d '|')
  ASAN_OPTIONS=detect_stack_use_after_return=1 \
    LSAN_OPTIONS=suppressions=$PWD/tools/sanitizers/leaks.supp:print_suppressions=0 \
    UBSAN_OPTIONS=print_stacktrace=1 \
    ctest --preset check -j 2 -E "^($left_out)" --output-log build/check/tests.log
}

phase packages bash tools/packages.sh check
phase "build by clang" bash tools/build.sh check --
phase "tests with sanitizers" sanitized_tests
phase fuzzer bash tools/fuzz.sh 60
