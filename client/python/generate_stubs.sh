#!/usr/bin/env bash
# Generates the Python stubs of moed's protocol with Debian's protoc and its gRPC plugin. usage: generate_stubs.sh OUT
set -euo pipefail
out=${1:?usage: $0 OUT}
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$out"
protoc --proto_path="$root/proto" --python_out="$out" --grpc_out="$out" --plugin=protoc-gen-grpc="$(command -v grpc_python_plugin)" \
  moe/v1/inference.proto moe/v1/control.proto
