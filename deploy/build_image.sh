#!/bin/sh
# Install the kcache server into PREFIX, a virtual environment of its own, from the sources that hold this
# script. The Dockerfile runs it, and so does a test: an image is this directory on a slim Python image.
#
#   deploy/build_image.sh PREFIX [EXTRAS]      EXTRAS: comma-separated, "server" unless given
#
# PYTHON names the interpreter. Needs what pip needs to install packages; no compiler: without one the wheel lacks
# the extension module of the client, which is optional (docs/internals/packaging.md).
set -eu

prefix=${1:?usage: build_image.sh PREFIX [EXTRAS]}
extras=${2:-server}
sources=$(cd "$(dirname "$0")/.." && pwd)
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT

"${PYTHON:-python3}" -m venv "$prefix"
pip="$prefix/bin/python -m pip --disable-pip-version-check --no-cache-dir --quiet"

# A wheel, not an editable install: what runs in the image is what users install.
$pip wheel --no-deps --wheel-dir "$wheels" "$sources"
$pip install "$(echo "$wheels"/kcache_grpc-*.whl)[$extras]"

# The interpreter of a read-only image cannot write bytecode; make it now.
"$prefix/bin/python" -m compileall -q "$prefix/lib" >/dev/null 2>&1 || true

# What the image is for works: the command line, the native libraries, the linker.
"$prefix/bin/kcache" --help >/dev/null
"$prefix/bin/python" -c 'import torch_mlir.ir, llvmlite.binding, kcache_grpc.embedded, kcache_migrations'
command -v ld.lld >/dev/null || command -v ld >/dev/null || {
    echo "build_image.sh: no linker: install binutils (ld) or lld" >&2
    exit 1
}
