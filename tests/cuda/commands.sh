#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands on the emulated GPU, against themselves on the CPU. usage: commands.sh PARE
pare=${1:?PARE}
zoo=$(cd "$(dirname "$0")/../../datasets/zoo" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
"$pare" data fashion-mnist -o . --quiet >out 2>&1 ||
    { echo "SKIP commands: $(tail -1 out)"; exit 77; }
status=0

check() { # NAME COMMAND...: passes where the command does
    name=$1
    shift
    if "$@" >out 2>&1; then echo "PASS $name"; else
        echo "FAIL $name: $(tail -1 out)"
        status=1
    fi
}

refused() { ! "$pare" inspect "$zoo/mlp.onnx" --device "$1" && grep -q "$2" out; }

for net in mlp cnn; do
    for device in cpu cuda; do
        check "${net}_calibrate_$device" "$pare" calibrate "$zoo/$net.onnx" --data train.h5 \
            --samples 8 -o "$net.$device.json" --device $device
        check "${net}_quantize_$device" "$pare" quantize "$zoo/$net.onnx" -o "$net.$device.onnx" \
            --ranges "$net.cpu.json" --device $device
        check "${net}_run_$device" "$pare" run "$net.$device.onnx" --data test.h5 --range 0:8 \
            -o "$net.$device.h5" --device $device
    done
    check "${net}_same_outputs" cmp "$net.cpu.h5" "$net.cuda.h5" # all between Q and DQ is integer
    check "${net}_validate" "$pare" validate "$zoo/$net.onnx" "$net.cuda.onnx" --data test.h5 \
        --samples 16 --device cuda
    check "${net}_bench" "$pare" bench "$net.cuda.onnx" --iterations 2 --duration 0 --warmUp 0 \
        --device cuda
done
check no_such_gpu refused cuda:9 "GPU 9 does not exist"
exit $status
