#!/usr/bin/env bash
# Installs the Debian 12 (or Ubuntu 24.04) packages that moed needs. usage: packages.sh build|widen|test|check
# Does nothing when all are there; otherwise needs root or sudo.
set -euo pipefail

build=(g++ cmake ninja-build ccache pkg-config git ca-certificates xz-utils
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libabsl-dev prometheus-cpp-dev libcivetweb-dev
  liburing-dev libseccomp-dev libcli11-dev nlohmann-json3-dev libpcre2-dev libutf8proc-dev libxxhash-dev libzstd-dev libspdlog-dev liblzma-dev
  libboost-dev libssl-dev
  python3 file dpkg-dev)  # for the target debian_packages
widen=(python3 python3-numpy)
test=("${build[@]}" "${widen[@]}" libgtest-dev libgmock-dev libbenchmark-dev libboost-context-dev curl openssl prometheus haproxy mmdebstrap groff-base systemd
  python3-grpcio python3-protobuf python3-yaml python3-venv)
# The page of moed-http is tested in a browser; Ubuntu has none but as a snap. Tests that lack this or FUSE say that they are skipped.
grep -q '^ID=debian' /etc/os-release && test+=(chromium-headless-shell python3-fusepy)
[ "$(uname -m)" = aarch64 ] || test+=(g++-aarch64-linux-gnu qemu-user-static)  # the ARM kernels are tested in emulation
check=("${test[@]}" clang clang-format libclang-rt-14-dev lld llvm)

case "${1:-}" in
  build) wanted=("${build[@]}") ;;
  widen) wanted=("${widen[@]}") ;;
  test) wanted=("${test[@]}") ;;
  check) wanted=("${check[@]}") ;;
  *) echo "usage: $0 build|widen|test|check" >&2; exit 2 ;;
esac

missing=()
for package in "${wanted[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "$0: needs root or sudo to install: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "installing ${#missing[@]} packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# Tests start servers of their own: those that Debian would start with their packages stay off.
servers=()
for package in "${missing[@]}"; do
  case $package in prometheus|haproxy) [ ! -d /run/systemd/system ] || servers+=("$package") ;; esac
done
[ ${#servers[@]} -eq 0 ] || "${as_root[@]}" systemctl mask --quiet --runtime "${servers[@]}"
"${as_root[@]}" apt-get update -q >/dev/null
"${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
if [ ${#servers[@]} -gt 0 ]; then
  "${as_root[@]}" systemctl unmask --quiet --runtime "${servers[@]}"
  "${as_root[@]}" systemctl disable --quiet "${servers[@]}"
fi
