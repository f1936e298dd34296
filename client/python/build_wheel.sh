#!/usr/bin/env bash
# Builds the wheel of the Python client with Debian's protoc; setuptools comes from PyPI. usage: build_wheel.sh OUT
set -euo pipefail
out=${1:?usage: $0 OUT}
here=$(cd "$(dirname "$0")" && pwd)
sources=$(mktemp -d)
trap 'rm -rf "$sources" "$sources.venv"' EXIT

cp -r "$here/pyproject.toml" "$here/README.md" "$here/moed" "$sources"
bash "$here/generate_stubs.sh" "$sources"
protoc --proto_path="$here/../../proto" --pyi_out="$sources" moe/v1/inference.proto moe/v1/control.proto
touch "$sources/moe/__init__.py" "$sources/moe/v1/__init__.py" "$sources/moe/py.typed"
"${PYTHON:-python3}" -m venv "$sources.venv"
"$sources.venv/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$out" "$sources"
