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

. "$(dirname "$0")/wheels.sh"
fetch_wheels "$folder" "nvidia-cuda-runtime==13.0.*" "nvidia-cuda-nvcc==13.0.*" "nvidia-cuda-crt==13.0.*" \
    "nvidia-nvvm==13.0.*" "nvidia-cuda-cccl==13.0.*" || missing "none is installed; $why"
chmod -R u+x "$home/nvvm/bin" || missing "the wheels hold no nvvm"
works "$home" || missing "the wheels hold no nvcc"
found "$home"
