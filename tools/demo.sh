#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The whole of pare in one go: installs what is missing, builds, makes a data set, converts the five
# sample nets to INT8, FP16 and BF16, compares them with the originals on 10,000 test images, prints tables
# and writes report.html.
#
#   sh tools/demo.sh [NET...]      default: mlp cnn resnet mobilenet vit
set -eu
cd "$(dirname "$0")/.."
. tools/packages.sh
nets=${*:-mlp cnn resnet mobilenet vit}
out=build/demo

# shellcheck disable=SC2086 # lists of words
packages_install $packages_build $packages_demo
echo "building in build/" >&2
{ cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release && ninja -C build pare; } >build.log 2>&1 || {
    tail -20 build.log >&2
    echo "the build failed; all of it is in build.log" >&2
    exit 1
}
mv build.log build/demo.log
pare=build/pare

echo "making data/train.h5 and data/test.h5" >&2
$pare data fashion-mnist -o data/ >/dev/null
rm -rf $out && mkdir -p $out
{
    echo "# what 'pare zoo' does here; paths are seen from this file's folder"
    echo "models:"
    for net in $nets; do echo "  - files: ['../../datasets/zoo/$net.onnx']"; done
    echo "data: ../../data/train.h5"
    echo "test: ../../data/test.h5"
    echo "variants:"
    for precision in int8 fp16 bf16; do
        echo "  - {name: $precision, steps: [quantize --precision $precision]}"
    done
} >$out/demo.yaml
$pare zoo $out/demo.yaml -o $out/zoo
cp $out/zoo/report.html report.html
echo "report.html shows the same with a picture; the models are in $out/zoo/models/, what was done is in $out/demo.yaml" >&2
