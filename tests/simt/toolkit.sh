#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes CUDA's headers and nvcc available to a build: prints where an installed toolkit is, or fetches
# NVIDIA's wheels of version 13.0 (about 110 MB) into FOLDER/cuda, where CMake looks for them.
#
#   sh tests/simt/toolkit.sh FOLDER
#
# Exit 0 and the toolkit's folder on stdout; 77 and the reason on stderr where none can be had.
set -u
folder=${1:?the build folder}
home=$folder/cuda/nvidia/cu13

works() { [ -f "$1/include/cuda_runtime_api.h" ] && [ -x "$1/bin/nvcc" ]; }
found() { echo "$1" && exit 0; }
missing() { echo "no CUDA toolkit: $1" >&2 && exit 77; }

[ -n "${CUDA_HOME:-}" ] && works "$CUDA_HOME" && found "$CUDA_HOME"
if nvcc=$(command -v nvcc); then
    nvcc=$(readlink -f "$nvcc")
    works "$(dirname "$(dirname "$nvcc")")" && found "$(dirname "$(dirname "$nvcc")")"
fi
works /usr/local/cuda && found /usr/local/cuda
works "$home" && found "$home"

[ "$(uname -sm)" = "Linux x86_64" ] || missing "none is installed, and wheels are for Linux x86-64"
command -v python3 >/dev/null || missing "none is installed, and python3 to fetch one is not there"
mkdir -p "$folder/cuda" || missing "$folder/cuda cannot be made"
pip="python3 -m pip"
if ! $pip --version >/dev/null 2>&1; then
    python3 -m venv "$folder/cuda/venv" >"$folder/cuda/log" 2>&1 ||
        missing "none is installed, and there is neither pip nor venv"
    pip="$folder/cuda/venv/bin/python -m pip"
fi
$pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$folder/cuda/wheels" \
    "nvidia-cuda-runtime==13.0.*" "nvidia-cuda-nvcc==13.0.*" "nvidia-cuda-crt==13.0.*" \
    "nvidia-nvvm==13.0.*" "nvidia-cuda-cccl==13.0.*" >"$folder/cuda/log" 2>&1 ||
    missing "none is installed; pip: $(grep -v '^$' "$folder/cuda/log" | tail -1 | cut -c1-200)"
for wheel in "$folder"/cuda/wheels/*.whl; do
    python3 -m zipfile -e "$wheel" "$folder/cuda" || missing "$wheel cannot be unpacked"
done
chmod -R u+x "$home/bin" "$home/nvvm/bin" # wheels' mode bits are lost in unpacking
rm -rf "$folder/cuda/wheels"
works "$home" || missing "the wheels hold no nvcc"
found "$home"
