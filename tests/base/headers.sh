#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every header compiles alone, as C11 and as C++. usage: headers.sh CC [FLAG...]
cd "$(dirname "$0")/../.." || exit 1
cc=$1
shift
cxx=
for name in "${CXX:-c++}" g++ clang++; do
    command -v "$name" >/dev/null 2>&1 && cxx=$name && break
done
status=0
for header in $(find runtime formats calib quant prune distill tools -name '*.h' 2>/dev/null | sort); do
    "$cc" -std=c11 -D_GNU_SOURCE -I. "$@" -Wall -Wextra -fsyntax-only -x c "$header" -Wno-unused-function \
        -Wno-pragma-once-outside-header 2>/tmp/headers.$$ ||
        { echo "FAIL $header-c: $(head -1 /tmp/headers.$$)"; status=1; }
    [ -n "$cxx" ] || continue
    "$cxx" -std=c++17 -I. "$@" -fsyntax-only -x c++ "$header" 2>/tmp/headers.$$ ||
        { echo "FAIL $header-cxx: $(head -1 /tmp/headers.$$)"; status=1; }
done
rm -f /tmp/headers.$$
[ -n "$cxx" ] || echo "SKIP as-cxx: no C++ compiler"
exit $status
