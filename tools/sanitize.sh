#!/usr/bin/env bash
# A second build, by clang with AddressSanitizer and UndefinedBehaviorSanitizer, of the test programs and the fuzzer's targets, which
# then run. What they do not need is analysed only. Warnings are errors, those of clang's analysis of locks too.
# usage: sanitize.sh [--quick]
#   --quick  without the tests of tools/sanitizers/long.txt and without that analysis, sources compiled in batches, as CI runs it
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/phase.sh

lists=(tools/sanitizers/left_out.txt)
quick=false
case "${1:-}" in
  --quick) quick=true; lists+=(tools/sanitizers/long.txt) ;;
  ?*) echo "usage: $0 [--quick]" >&2; exit 2 ;;
esac
left_out=$(grep -hv '^#' "${lists[@]}" | cut -d ' ' -f 1 | paste -s -d '|')
programs=()
for program in $(find tests -name CMakeLists.txt -exec sed -n 's/^moed_test(\(\w*\).*/\1/p' {} +); do
  [[ "$program." =~ ^($left_out) ]] || programs+=("$program")
done
fuzzers=()
for fuzzer in $(sed -n 's/^moed_fuzz(\(\w*\).*/fuzz_\1/p' tests/fuzz/CMakeLists.txt); do
  [[ "$fuzzer." =~ ^($left_out) ]] || fuzzers+=("$fuzzer")
done

sanitized_tests() {
  cat "${lists[@]}"
  ASAN_OPTIONS=detect_stack_use_after_return=1 \
    LSAN_OPTIONS=suppressions=$PWD/tools/sanitizers/leaks.supp:print_suppressions=0 \
    UBSAN_OPTIONS=print_stacktrace=1 \
    ctest --preset check -j 2 -R "^($(IFS='|'; echo "${programs[*]}"))(\.|$)" -E "^($left_out)" --output-log build/check/tests.log
}

phase packages bash tools/packages.sh check
batches=OFF; if $quick; then batches=ON; fi
phase "build by clang" bash tools/build.sh check "-DMOED_BATCHES=$batches" -- "${programs[@]}" "${fuzzers[@]}"
if ! $quick; then phase "analysis of the rest" python3 tools/sanitizers/analyse.py build/check; fi
phase "tests with sanitizers" sanitized_tests
phase fuzzer bash tools/fuzz.sh 60 "${fuzzers[@]#fuzz_}"
