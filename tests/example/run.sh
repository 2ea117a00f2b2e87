#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the release build to a folder, builds the examples against it with pkg-config only, and
# runs them: the quantized file must equal the one that the program makes and agree with its FP32 model,
# at most half of the pruned model's multiply-adds are left, pruning to a latency must remove channels, and
# a trained student must be nearer to its teacher. usage: run.sh [BUILD-FOLDER]
set -eu
cd "$(dirname "$0")/../.."
build=$PWD/${1:-build}
work=$build/tests/example
rm -rf "$work" && mkdir -p "$work"
cmake --install "$build" --prefix "$work/usr" >"$work/install.log"
PKG_CONFIG_PATH=$(dirname "$(find "$work/usr" -name pare.pc)")
export PKG_CONFIG_PATH
for example in quantize prune prune_latency distill validate; do
    # shellcheck disable=SC2046 # lists of flags
    "${CC:-cc}" -std=c11 -Wall -Wextra -Werror "tests/example/$example.c" \
        $(pkg-config --cflags pare) $(pkg-config --static --libs pare) -o "$work/$example"
done
[ "$("$work/usr/bin/pare" version | head -1)" = "pare $(pkg-config --modversion pare)" ]
[ -f data/train.h5 ] || "$work/usr/bin/pare" data fashion-mnist -q -o data/ >/dev/null
"$work/quantize" datasets/zoo/mlp.onnx data/train.h5 "$work/example.onnx"
"$work/usr/bin/pare" quantize -q datasets/zoo/mlp.onnx -o "$work/program.onnx" --data data/train.h5
cmp "$work/example.onnx" "$work/program.onnx"
"$work/validate" datasets/zoo/mlp.onnx "$work/example.onnx" data/train.h5 |
    awk '{ print } { top1 = $2; agree = $5 } END { exit !(NR == 2 && top1 > 80 && agree > 95) }'

"$work/prune" datasets/zoo/cnn.onnx "$work/half.onnx" |
    awk '{ print } !($2 > 0 && $2 <= 50) { exit 1 }'
"$work/distill" datasets/zoo/cnn.onnx "$work/half.onnx" data/train.h5 "$work/trained.onnx" |
    awk '{ print } !($4 + 0 > $6 + 0) { exit 1 }'
"$work/prune_latency" datasets/zoo/resnet.onnx 0.6 "$work/fast.onnx" |
    awk '{ print } !($8 > 0) { exit 1 }'
