#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the release build to a folder, builds the example against it with pkg-config only, and runs
# it: the file it makes must equal the one that the program makes. usage: run.sh [BUILD-FOLDER]
set -eu
cd "$(dirname "$0")/../.."
build=$PWD/${1:-build}
work=$build/tests/example
rm -rf "$work" && mkdir -p "$work"
cmake --install "$build" --prefix "$work/usr" >"$work/install.log"
PKG_CONFIG_PATH=$(dirname "$(find "$work/usr" -name pare.pc)")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046 # lists of flags
"${CC:-cc}" -std=c11 -Wall -Wextra -Werror tests/example/quantize.c $(pkg-config --cflags pare) \
    $(pkg-config --static --libs pare) -o "$work/quantize"
[ "$("$work/usr/bin/pare" version | head -1)" = "pare $(pkg-config --modversion pare)" ]
[ -f data/train.h5 ] || "$work/usr/bin/pare" data fashion-mnist -q -o data/ >/dev/null
"$work/quantize" datasets/zoo/mlp.onnx data/train.h5 "$work/example.onnx"
"$work/usr/bin/pare" quantize -q datasets/zoo/mlp.onnx -o "$work/program.onnx" --data data/train.h5
cmp "$work/example.onnx" "$work/program.onnx"
