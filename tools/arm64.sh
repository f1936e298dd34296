#!/usr/bin/env bash
# The whole of moed for 64-bit ARM on an amd64 Debian 12: cross-compiled against Debian's arm64 packages, then run in emulation
# (qemu-user). The demo model is packed and served by the arm64 programs; the store's bytes and the tokens must be those of the
# amd64 programs. Then tests of kernels, model, experts and exact mode run. Nothing of the host is changed but for the packages
# of tools/packages.sh. usage: arm64.sh [FOLDER]    what it makes goes to FOLDER (build/arm64)
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(realpath -m "${1:-build/arm64}")
sysroot=$folder/sysroot
native=$folder/amd64
cross=$folder/arm64
# Test programs and what of them runs. Not the death tests that start themselves again, which the emulator cannot; of the exact mode
# what depends on the processor, since all of it takes too long.
declare -A tests=(
  [kernels_test]='*'
  [model_parity_test]='*'
  [expert_test]='-LoadOrder.ALeakedPinEndsTheProcess'
  [exact_mode_test]='ExactMode.EveryReadBackend:ExactMode.EveryComputeBackendThreadCountAndChunk'
)
# As Orin's Cortex-A78AE: dotprod, no i8mm. Then all that the emulator has.
processors=(cortex-a76 max)

daemon=  # that runs
trap '[ -z "$daemon" ] || kill "$daemon" 2>/dev/null' EXIT

say() { printf '\n== %s\n' "$*"; }

# Downloads Debian's arm64 packages of every library that tools/packages.sh names, with the host's own sources of packages.
fetch_packages() {
  local apt=$folder/apt
  mkdir -p "$apt"/lists/partial "$apt"/archives/partial
  : >"$apt/status"
  local options=(-q -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User= -o Dir::Cache="$apt"
    -o Dir::State="$apt" -o Dir::State::status="$apt/status")
  apt-get "${options[@]}" update >/dev/null
  apt-get "${options[@]}" install -y --download-only --no-install-recommends libc6-dev \
    $(grep -oE '[a-z0-9+-]+-dev\b' tools/packages.sh) >/dev/null
}

# A folder as `debootstrap --foreign` would leave it, of these packages alone and without being root.
unpack_packages() {
  local unpacking=$sysroot.unpacking package link
  rm -rf "$unpacking"
  mkdir -p "$unpacking"/usr/{bin,lib,sbin}
  ln -s usr/bin usr/lib usr/sbin "$unpacking"
  for package in "$folder"/apt/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$unpacking"
  done
  # Absolute links would lead into the host's folders.
  find "$unpacking" -type l -lname '/*' | while read -r link; do
    ln -sfnr "$unpacking$(readlink "$link")" "$link"
  done
  # Generators of code run here.
  ln -s /usr/bin/grpc_*_plugin "$unpacking/usr/bin"
  write_database "$unpacking"
  mv "$unpacking" "$sysroot"
}

# dpkg's database of the packages in a folder, which dpkg-shlibdeps asks for the libraries' packages: with paths as the sysroot has them.
write_database() {
  local database=$1/var/lib/dpkg deb name
  mkdir -p "$database/info" "$database/updates"
  echo 1 >"$database/info/format"
  printf 'amd64\narm64\n' >"$database/arch"
  for deb in "$folder"/apt/archives/*.deb; do
    name=$(dpkg-deb -f "$deb" Package)
    [ "$(dpkg-deb -f "$deb" Multi-Arch)" != same ] || name=$name:arm64
    dpkg-deb --ctrl-tarfile "$deb" |
      tar -x -C "$database/info" --transform "s|^\./|$name.|" --wildcards ./symbols ./shlibs 2>/dev/null || true  # some have neither
    dpkg-deb --fsys-tarfile "$deb" | tar -t | sed "s|^\./lib/|./usr/lib/|; s|^\.|$sysroot|; s|/$||" >"$database/info/$name.list"
    dpkg-deb -f "$deb" | sed '/^Package:/a Status: install ok installed' >>"$database/status"
    echo >>"$database/status"
  done
}

# NVIDIA's headers and static runtime for arm64, of the version of this machine's nvcc, from PyPI. Sets `cuda` to cmake's options.
fetch_cuda() {
  local nvcc version wheels=$folder/cuda-wheels toolkit=$folder/cuda
  cuda=(-DMOED_CUDA=OFF)
  nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc) || { echo "no nvcc: arm64 without CUDA"; return; }
  version=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p')
  if [ ! -d "$toolkit" ]; then
    if ! { /usr/bin/python3 -m venv "$folder/venv" &&
      "$folder/venv/bin/pip" download --quiet --disable-pip-version-check --retries 1 --no-deps --only-binary=:all: \
        --platform manylinux2014_aarch64 --dest "$wheels" "nvidia-cuda-runtime==$version.*"; }; then
      echo "no runtime of CUDA $version for arm64: arm64 without CUDA"
      return
    fi
    /usr/bin/python3 -m zipfile -e "$wheels"/nvidia_cuda_runtime-*.whl "$wheels"
    mv "$wheels"/nvidia/cu* "$toolkit"
  fi
  cuda=(-DMOED_CUDA=ON -DCUDAToolkit_ROOT="$toolkit" -DMOED_NVCC="$nvcc" -DMOED_CUDA_ARCHITECTURES=87-real)
}

# Configures FOLDER; the rest are cmake's options.
configure() {
  local binary=$1; shift
  cmake -S . -B "$binary" -G Ninja -DCMAKE_BUILD_TYPE=Release "$@" >/dev/null
}

emulator() { echo qemu-aarch64-static -cpu "$1" -L "$sysroot"; }

# Scripts in the place of the arm64 programs, since tests start them by name: EMULATED_CPU chooses the processor.
wrap_programs() {
  mkdir -p "$cross/programs"
  local program
  for program in moed moectl moed-pack; do
    [ "$(head -c 2 "$cross/bin/$program")" = '#!' ] && continue
    mv "$cross/bin/$program" "$cross/programs"
    printf '#!/bin/sh\nexec %s "%s" "$@"\n' "$(emulator '"${EMULATED_CPU:-max}"')" "$cross/programs/$program" >"$cross/bin/$program"
    chmod +x "$cross/bin/$program"
  done
}

# The Debian packages of the arm64 programs. They are for arm64, and name the packages of the libraries that the programs load.
pack_packages() {
  local program deb
  for program in "$cross"/programs/*; do  # an earlier run's, for the wrapped ones
    [ ! -e "$program" ] || mv "$program" "$cross/bin"
  done
  DPKG_ADMINDIR=$sysroot/var/lib/dpkg DEB_HOST_ARCH=arm64 cmake --build "$cross" --target debian_packages
  for deb in "$cross"/packages/*.deb; do
    [ "$(dpkg-deb -f "$deb" Architecture)" = arm64 ]
    dpkg-deb -f "$deb" Depends | grep -F libabsl
    rm -rf "$folder/unpacked"
    dpkg-deb -x "$deb" "$folder/unpacked"
    for program in "$folder"/unpacked/usr/bin/*; do
      readelf -h "$program" | grep -q 'Machine: *AArch64'
      $(emulator max) "$program" --version
    done
  done
}

# Serves STORE with the programs of BIN and prints the answers' tokens, greedy and drawn with a seed.
answers() {
  local bin=$1 store=$2 log=$2.log address=
  "$bin/moed" --store "$store" --memory-budget 14MiB --threads 2 --listen 127.0.0.1:0 --metrics-listen off >"$log" 2>&1 &
  daemon=$!
  for _ in $(seq 300); do
    address=$(sed -n 's/.*listening on \(127\.0\.0\.1:[0-9]*\).*/\1/p' "$log" | head -n 1)
    [ -n "$address" ] && grep -q ' ready: ' "$log" && break
    kill -0 "$daemon" 2>/dev/null || { cat "$log" >&2; return 1; }
    sleep 0.1
  done
  local prompt="Once upon a time there was a little"
  local request=(--server "$address" generate --prompt "$prompt" --max-new-tokens 48 --ignore-eos)
  "$bin/moectl" "${request[@]}" --temperature 0 --json | tokens
  "$bin/moectl" "${request[@]}" --temperature 0.8 --top-p 0.9 --seed 7 --json | tokens
  "$bin/moectl" "${request[@]}" --temperature 0.8 --top-p 0.9 --seed 7  # streamed, as text
  echo
  grep -oE 'kernels: [^;]*; reads: .*' "$log" >&2
  kill -TERM "$daemon"
  wait "$daemon"
  daemon=
}

tokens() { /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)["token_ids"])'; }

if [ "$(dpkg --print-architecture)" != amd64 ]; then
  echo "$0: for amd64; on an arm64 machine tools/test.sh runs everything" >&2
  exit 2
fi
mkdir -p "$folder"
bash tools/packages.sh test
if [ ! -d "$sysroot" ]; then
  say "Debian's arm64 packages"
  fetch_packages
  unpack_packages
fi

say "build for amd64"
configure "$native" -DMOED_BUILD_TESTS=OFF -DMOED_CUDA=OFF
cmake --build "$native" --target moed moectl moed-pack

say "build for arm64"
fetch_cuda
configure "$cross" "${cuda[@]}" -DMOED_BUILD_TESTS=ON -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64-linux-gnu.cmake" -DCMAKE_SYSROOT="$sysroot" \
  -DCMAKE_CROSSCOMPILING_EMULATOR="qemu-aarch64-static;-L;$sysroot"
cmake --build "$cross" --target moed moectl moed-pack
say "Debian packages for arm64"
pack_packages
wrap_programs
if [ "${cuda[0]}" = -DMOED_CUDA=ON ]; then  # its kernels are in, and it looks for a device
  "$cross/bin/moed" --list | grep -E '^ *cuda .*no CUDA device'
fi

for formats in bf16 q4; do
  say "pack and serve: experts in $formats"
  for system in amd64 arm64; do
    "$folder/$system/bin/moed-pack" models/tales-qwen "$folder/$system-$formats.moed" --force --expert-formats "$formats" \
      --trunk-format "$formats" >/dev/null
  done
  cmp "$folder"/{amd64,arm64}-"$formats".moed
  answers "$native/bin" "$folder/amd64-$formats.moed" >"$folder/amd64-$formats.txt"
  for processor in "${processors[@]}"; do
    EMULATED_CPU=$processor answers "$cross/bin" "$folder/arm64-$formats.moed" >"$folder/arm64-$formats-$processor.txt"
    cmp "$folder"/{amd64-"$formats",arm64-"$formats-$processor"}.txt
  done
  tail -n +3 "$folder/arm64-$formats-max.txt"
  echo "the same store and the same tokens on amd64 and on arm64 (${processors[*]})"
done

say "tests in emulation"
cmake --build "$cross" --target "${!tests[@]}"
wrap_programs  # which a test may have built again
for program in "${!tests[@]}"; do
  $(emulator max) "$cross/tests/$program" --gtest_brief=1 --gtest_filter="${tests[$program]}"
done
