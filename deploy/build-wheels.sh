#!/bin/sh
# build-wheels.sh SOURCE WHEELS: an sdist of SOURCE, and wheels of it and of all that it needs.
# The wheel is made from the sdist, so a file that the sdist forgot breaks the build here.
set -eu
source=$1 wheels=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CFLAGS="${CFLAGS:--O3 -g1 -fno-strict-aliasing}"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
printf '[build_ext]\nparallel = %s\n' "$(nproc)" > "$work/build.cfg"
export DIST_EXTRA_CONFIG="$work/build.cfg"
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q build
"$work/venv/bin/python" -m build --sdist --outdir "$work/sdist" "$source"
mkdir -p "$wheels"
"$work/venv/bin/pip" wheel -q --wheel-dir "$wheels" "$work"/sdist/martlet-*.tar.gz
