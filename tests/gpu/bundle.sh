#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes FOLDER/pare-gpu.tar.xz: programs for a GPU, the libraries they need, and run.sh, for any
# x86-64 Linux with a CUDA 13 driver. Needs no GPU.
#
#   sh tests/gpu/bundle.sh [FOLDER]     the build folder (build), made and built where it is not yet
#
# Exit 0, and what is in it on stdout; 1 and the reason on stderr; 77 where there is no CUDA toolkit.
set -u
cd "$(dirname "$0")/../.." || exit 1
root=$PWD
build=${1:-build}
glibc_most=2.36  # Debian 12's
size_most=40000000 # what a machine is sent at once is often bounded by 64 MiB
fail() { echo "bundle: $*" >&2; exit 1; }
command -v xz >/dev/null || fail "xz is not installed"
command -v objdump >/dev/null || fail "objdump is not installed"

mkdir -p "$build" || exit 1
if [ ! -f "$build/build.ninja" ]; then
    sh tests/simt/toolkit.sh "$build" >/dev/null || exit 77
    cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release >"$build/bundle.log" 2>&1 ||
        fail "cmake: $(tail -3 "$build/bundle.log" | tr '\n' ' ')"
fi
ninja -C "$build" gpu_programs >"$build/bundle.log" 2>&1 || {
    grep -q "unknown target" "$build/bundle.log" &&
        echo "bundle: $build is built without GPU programs" >&2 && exit 77
    fail "$(grep -E 'error|FAILED|undefined' "$build/bundle.log" | head -3 | tr '\n' ' ')"
}
build=$(cd "$build" && pwd)

# --- programs ---

stage=$build/bundle
top=$stage/pare-gpu
rm -rf "$stage"
mkdir -p "$top/bin" "$top/lib" "$top/data" "$top/datasets" "$top/scripts" || exit 1
while read -r name file; do
    cp "$file" "$top/bin/$name" || exit 1
    echo "$file"
done <"$build/tests/simt/gpu_programs.txt" >"$stage/programs"
strip "$top"/bin/* || fail "strip failed"

# --- libraries: all but those of glibc, which belong to the machine ---

glibc="ld-linux-x86-64 libc libm libpthread libdl librt libresolv libutil libmvec linux-vdso"
xargs -d '\n' ldd <"$stage/programs" | awk '/=> \//{ print $3 }' | sort -u >"$stage/needed"
while read -r file; do
    stem=$(basename "$file")
    case " $glibc " in *" ${stem%%.so*} "*) continue ;; esac
    cp -L "$file" "$top/lib/$stem" || exit 1
done <"$stage/needed"
strip --strip-unneeded "$top"/lib/* 2>/dev/null
oldest=$(for file in "$top"/bin/* "$top"/lib/*; do objdump -T "$file"; done 2>/dev/null |
    grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -1)
[ "$(printf '%s\n' "$oldest" $glibc_most | sort -V | tail -1)" = "$glibc_most" ] ||
    fail "the programs need glibc $oldest: build on a system with glibc $glibc_most or older"

# --- data and scripts ---

"$build/tests/simt/simt_selftest_plain" --record "$top/data/selftest.bin" || fail "no recording"
cp -r datasets/zoo "$top/datasets/" || exit 1
rm -rf "$top/datasets/zoo/__pycache__"
cp tests/gpu/run.sh tests/gpu/README.md LICENSE "$top/" || exit 1
cp tests/gpu/*.awk tests/gpu/torch_bench.py tests/bench/bert.py tests/bench/export_models.py \
    "$top/scripts/" || exit 1
{
    echo "glibc=$oldest"
    echo "code=$(sed -n 's/^code=//p' "$build/tests/simt/gpu_programs.facts")"
    echo "toolkit=$(sed -n 's/^toolkit=//p' "$build/tests/simt/gpu_programs.facts")"
    echo "revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)"
} >"$top/MANIFEST"

# Nothing of this machine is inside.
for file in "$top"/bin/* "$top"/lib/*; do
    strings -a "$file" | grep -F -m1 -e "$root" -e "$build" >"$stage/leak" &&
        fail "$(basename "$file") holds a path of this machine: $(cat "$stage/leak")"
done

tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner -cf - pare-gpu |
    xz -c -1 >"$build/pare-gpu.tar.xz" || fail "tar or xz failed"
size=$(wc -c <"$build/pare-gpu.tar.xz")
[ "$size" -le $size_most ] || fail "$size bytes, more than $size_most"
echo "$build/pare-gpu.tar.xz: $size bytes, $(find "$top/bin" -type f | wc -l) programs," \
    "$(find "$top/lib" -type f | wc -l) libraries, glibc $oldest or newer"
