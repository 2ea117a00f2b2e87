#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every header compiles alone, as C11 and as C++. usage: headers.sh CC [FLAG...]
# CUDA_INCLUDE=FOLDER   CUDA's headers, for those of runtime/cuda
cd "$(dirname "$0")/../.." || exit 1
cc=$1
shift
cxx=
for name in "${CXX:-c++}" g++ clang++; do
    command -v "$name" >/dev/null 2>&1 && cxx=$name && break
done
status=0
for header in $(find runtime formats calib quant prune distill tools -name '*.h' 2>/dev/null | sort); do
    case $header in
    runtime/cuda/*)
        [ -n "${CUDA_INCLUDE:-}" ] || { echo "SKIP $header: CUDA's headers were not found"; continue; }
        cuda="-isystem $CUDA_INCLUDE -Itests/simt" ;;
    *) cuda= ;;
    esac
    # kernels' header is C++ only; $cuda is a list of words
    # shellcheck disable=SC2086
    [ "$header" = runtime/cuda/device/simt.h ] ||
    "$cc" -std=c11 -D_GNU_SOURCE -I. "$@" $cuda -Wall -Wextra -fsyntax-only -x c "$header" -Wno-unused-function \
        -Wno-pragma-once-outside-header 2>/tmp/headers.$$ ||
        { echo "FAIL $header-c: $(head -1 /tmp/headers.$$)"; status=1; }
    [ -n "$cxx" ] || continue
    # shellcheck disable=SC2086
    "$cxx" -std=c++17 -I. "$@" $cuda -fsyntax-only -x c++ "$header" 2>/tmp/headers.$$ ||
        { echo "FAIL $header-cxx: $(head -1 /tmp/headers.$$)"; status=1; }
done
rm -f /tmp/headers.$$
[ -n "$cxx" ] || echo "SKIP as-cxx: no C++ compiler"
exit $status
