#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every header compiles alone, and all of them in one translation unit, as C11 and as C++.
# usage: headers.sh CC [FLAG...]
# BUILD=FOLDER          where files are written (build)
# CUDA_INCLUDE=FOLDER   CUDA's headers, for those of runtime/cuda
cd "$(dirname "$0")/../.." || exit 1
cc=$1
shift
cxx=
for name in "${CXX:-c++}" g++ clang++; do
    command -v "$name" >/dev/null 2>&1 && cxx=$name && break
done
status=0
work=${BUILD:-build}/tests/headers
mkdir -p "$work" || exit 1
said=$work/said
all=

# compiles NAME LANGUAGE FILE FLAG...: one line where it does not
compiles() {
    name=$1 language=$2 file=$3
    shift 3
    if [ "$language" = c ]; then
        "$cc" -std=c11 -D_GNU_SOURCE -I. "$@" -Wall -Wextra -fsyntax-only -x c "$file" -Wno-unused-function \
            -Wno-pragma-once-outside-header 2>"$said"
    else
        "$cxx" -std=c++20 -I. "$@" -fsyntax-only -x c++ "$file" 2>"$said"
    fi || { echo "FAIL $name-$language: $(grep -m1 error "$said")"; status=1; }
}

for header in $(find runtime formats calib quant prune distill tools -name '*.h' 2>/dev/null | sort); do
    case $header in
    runtime/cuda/*)
        [ -n "${CUDA_INCLUDE:-}" ] || { echo "SKIP $header: CUDA's headers were not found"; continue; }
        cuda="-isystem $CUDA_INCLUDE -Itests/simt" ;;
    *) cuda= ;;
    esac
    all="$all $header"
    # kernels' header is C++ only; $cuda is a list of words
    # shellcheck disable=SC2086
    case $header in */simt.h) ;; *) compiles "$header" c "$header" "$@" $cuda ;; esac
    # shellcheck disable=SC2086
    [ -z "$cxx" ] || compiles "$header" cxx "$header" "$@" $cuda
done

# The options of a call are made by an _init function, so that they can grow.
for name in $(sed -n '/^set(PUBLIC_HEADERS/,/^)/s/^ *\(.*\.h\)$/\1/p' CMakeLists.txt |
    xargs sed -n 's/^} \(pare_[a-z_]*_options\);$/\1/p'); do
    # shellcheck disable=SC2086
    grep -q "^void ${name}_init(" $all || { echo "FAIL $name: no ${name}_init"; status=1; }
done

# Two headers may not use one name for two things.
for header in $all; do
    case $header in */simt.h) ;; *) echo "#include \"$header\"" ;; esac
done >"$work/all.h"
cuda=
[ -z "${CUDA_INCLUDE:-}" ] || cuda="-isystem $CUDA_INCLUDE -Itests/simt"
# shellcheck disable=SC2086
compiles all c "$work/all.h" "$@" $cuda
# shellcheck disable=SC2086
[ -z "$cxx" ] || compiles all cxx "$work/all.h" "$@" $cuda
[ -n "$cxx" ] || echo "SKIP as-cxx: no C++ compiler"
[ $status != 0 ] || echo "$(echo "$all" | wc -w) headers compile alone and together"
exit $status
