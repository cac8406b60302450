#!/bin/sh
# install-wheels.sh WHEELS TARGET: an environment at TARGET with Martlet in it, and no pip.
set -eu
wheels=$1 target=$2
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
python3 -m venv --without-pip "$target"
python3 -m pip --python "$target/bin/python" install -q --no-index --find-links "$wheels" martlet
