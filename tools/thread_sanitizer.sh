#!/usr/bin/env bash
# ThreadSanitizer over what has threads: the engine, the provider of experts, reads, the services. A third build by clang, in
# build/thread, on an Abseil that is built from Debian's source package with the sanitizer: its locks are what happens before what.
# By command, for it takes long. usage: thread_sanitizer.sh [TEST PROGRAM...]
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/phase.sh

folder=$PWD/build/thread
programs=("${@:-expert_test engine_test kv_spill_test io_test service_test}")
read -ra programs <<<"${programs[*]}"
left_out=$(grep -v '^#' tools/sanitizers/left_out.txt | cut -d ' ' -f 1 | paste -s -d '|')  # as in sanitize.sh

# Debian's own source of what is installed. apt's lists of sources are kept apart: the machine's stay as they are.
abseil_source() (
  command -v dpkg-source >/dev/null || { echo "thread_sanitizer.sh: needs dpkg-source (Debian's dpkg-dev)" >&2; exit 1; }
  version=$(dpkg-query -W -f '${Version}' libabsl-dev)
  mkdir -p "$folder/source"
  cd "$folder/source"
  [ -e "abseil-$version" ] && exit
  mkdir -p parts lists/partial
  sed 's/^Types:.*/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >parts/debian.sources
  own=(-q -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$PWD/parts" -o Dir::State::Lists="$PWD/lists")
  apt-get "${own[@]}" update
  apt-get "${own[@]}" source --download-only "abseil=$version"
  dpkg-source -x abseil_*.dsc "abseil-$version"
)

abseil() {
  abseil_source
  cmake -G Ninja -S "$folder"/source/abseil-*/ -B "$folder/source/build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER=clang++ \
    -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_STANDARD=17 -DBUILD_SHARED_LIBS=ON -DCMAKE_INSTALL_PREFIX="$folder/abseil" \
    -DCMAKE_CXX_FLAGS="-fsanitize=thread -fno-omit-frame-pointer"
  cmake --build "$folder/source/build" --target install
}

threaded_tests() {
  export TSAN_OPTIONS="suppressions=$PWD/tools/sanitizers/threads.supp history_size=4 second_deadlock_stack=1"
  ctest --preset thread -j 2 -R "^($(IFS='|'; echo "${programs[*]}"))(\.|$)" -E "^($left_out)" --output-log "$folder/tests.log"
}

phase packages bash tools/packages.sh check
phase "Abseil by clang" abseil
phase "build by clang" bash tools/build.sh thread -- "${programs[@]}"
phase "tests with ThreadSanitizer" threaded_tests
