#!/usr/bin/env bash
# Generates the Python stubs of moed's protocol. usage: generate_stubs.sh OUT [PYTHON]
set -euo pipefail
out=${1:?usage: $0 OUT [PYTHON]}
python=${2:-python3}
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$out"
"$python" -m grpc_tools.protoc --proto_path="$root/proto" --python_out="$out" --grpc_python_out="$out" \
  "$root/proto/moe/v1/inference.proto" "$root/proto/moe/v1/control.proto"
