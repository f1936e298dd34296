#!/usr/bin/env bash
# Lays the tiny checkpoints of data/ out as they are released, their weights unpacked. usage: unpack_checkpoints.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/data"

rm -rf "$1"
mkdir -p "$1"
cp -r . "$1"
find "$1" -name 'model.safetensors.xz' -exec xz -d {} +
