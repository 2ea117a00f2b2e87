#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares the instructions of the kernels that were compiled for sm_90 with sass.txt beside this file: no hot
# loop and no epilogue grows, none gains a division, an indirect branch, a call or local memory, no load gets
# narrower, no SM holds fewer blocks; kernels that take a net's time have no division, call or local memory at all.
# sass.py says what is counted. Then what ResNet-50 takes by the budget's counts, which `pare inspect --device` has
# in it, is held to limits.
#
#   sh tests/cuda/sass.sh NVCC FOLDER [--write]      FOLDER: what nvcc made, STEM.o and STEM.ptxas
#
# cuobjdump and nvdisasm are NVIDIA's, on PATH or from PyPI (5.5 MB). Exit 77 where they cannot be had.
set -u
cd "$(dirname "$0")/../.." || exit 1
nvcc=${1:?nvcc} folder=${2:?the folder of what nvcc made} write=${3:-}
case $folder in /*) ;; *) folder=$PWD/$folder ;; esac
budget=tests/cuda/sass.txt now=$folder/sass.now work=$folder/sass

"$nvcc" --version | grep -q "release 13.0" || {
    echo "SKIP sass: the budget is for nvcc 13.0" && exit 77
}
if ! command -v cuobjdump >/dev/null || ! command -v nvdisasm >/dev/null; then
    tools=$(dirname "$folder")/cuda/nvidia/cu13/bin
    if [ ! -x "$tools/cuobjdump" ] || [ ! -x "$tools/nvdisasm" ]; then
        . tests/simt/wheels.sh
        fetch_wheels "$(dirname "$folder")" "nvidia-cuda-cuobjdump==13.2.78" "nvidia-cuda-nvdisasm==13.2.78" || {
            echo "SKIP sass: no nvdisasm: $why" && exit 77
        }
    fi
    PATH=$PATH:$tools
fi

fail() { echo "FAIL: $1" && exit 1; }
rm -rf "$work" && mkdir -p "$work" || exit 1
for object in "$folder"/*.o; do
    stem=$(basename "$object" .o)
    cuobjdump -lelf "$object" | grep -q sm_90 || continue # of another architecture alone
    (cd "$work" && cuobjdump -xelf sm_90 "$object" >/dev/null) || fail "cuobjdump cannot read $object"
    cubin=$(echo "$work/$stem".*sm_90*.cubin) # sm_90 or sm_90a
    nvdisasm "$cubin" >"$work/$stem.sass" || fail "nvdisasm cannot read $cubin"
    python3 tests/cuda/sass.py "$work/$stem.sass" "$folder/$stem.ptxas" >>"$work/all" || fail "sass.py cannot read $stem"
    rm -f "$cubin" "$work/$stem.sass"
done
LC_ALL=C sort "$work/all" >"$now"
[ -s "$now" ] || fail "no kernel for sm_90 in $folder"
[ "$write" = --write ] && cp "$now" "$budget" && exit 0
python3 tests/cuda/sass.py --compare "$budget" "$now" || exit 1

# --- ResNet-50: one picture of noise gives ranges; they change no time ---
build=$(dirname "$folder")
pare=$build/pare make_net=$build/tests/simt/gpu_make_net
[ -x "$pare" ] && [ -x "$make_net" ] || fail "$pare or $make_net is not built: no prediction"
cd "$work" && "$make_net" resnet50.onnx || fail "ResNet-50 cannot be made"
{
    printf '\223NUMPY\001\000\166\000%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 3, 224, 224), }"
    awk 'BEGIN { for (i = 0; i < 150528; i++) printf "%c", 32 + i * 7919 % 89 }'
} >noise.npy
"$pare" data import --npy noise.npy -o noise.h5 >/dev/null &&
    "$pare" calibrate -q resnet50.onnx --data noise.h5 -o ranges.json >/dev/null &&
    "$pare" quantize -q resnet50.onnx -o int8.onnx --ranges ranges.json >/dev/null &&
    "$pare" quantize -q resnet50.onnx -o fp16.onnx --precision fp16 >/dev/null || fail "ResNet-50 cannot be quantized"
for batch in 1 32 128; do
    for precision in int8 fp16; do
        "$pare" inspect $precision.onnx --device h200 --batch $batch >table || fail "ResNet-50 is not predicted"
        sed -n -e "s/^sum */ResNet-50 $precision: /p" -e 's/^slower */    /p' table
        case $precision.$batch in # at most so many milliseconds
        int8.1) most=0.25 what="0.25 ms" ;;
        int8.128) most=2.1333 what="2.1333 ms, 60,000 images/s" ;;
        fp16.128) most=3.6571 what="3.6571 ms, 35,000 images/s" ;;
        *) continue ;;
        esac
        awk -v most=$most '$1 == "sum" && $3 == "ms" && $2 > 0 { found = $2 <= most } END { exit !found }' table ||
            fail "ResNet-50 $precision at batch $batch: $(sed -n 's/^sum *//p' table); at most $what may be predicted"
    done
done
