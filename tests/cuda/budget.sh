#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares what ptxas said of every kernel while the program was built (FOLDER/STEM.ptxas) with
# budget.txt beside this file (architecture, kernel, registers, shared bytes): none spills, none
# takes more.
#
#   sh tests/cuda/budget.sh NVCC FOLDER [--write]
set -u
cd "$(dirname "$0")/../.." || exit 1
nvcc=${1:?nvcc} folder=${2:?the folder of what nvcc made} write=${3:-}
budget=tests/cuda/budget.txt now=$folder/budget.now failed=0
: >"$now"
for source in $(find runtime/cuda -name '*.cu' | LC_ALL=C sort); do
    said=$folder/$(basename "$source" .cu).ptxas
    [ -s "$said" ] || { echo "FAIL: $said is missing or empty" && exit 1; }
    # architecture, kernel, registers, shared bytes, spills
    awk '
        /Compiling entry function/ { arch = $NF; gsub(/\047/, "", arch) }
        /Function properties for/ { name = $NF; shared = 0 }
        /bytes spill/ { spill = $5 + $9 }
        /Used [0-9]+ registers/ {
            for (i = 1; i <= NF; i++) {
                if ($i ~ /^registers/) registers = $(i - 1)
                if ($i ~ /^smem/) shared = $(i - 2)
            }
            print arch, name, registers, shared, spill
        }' "$said" >>"$now"
done
# Other compilers allot other registers: only spills are looked at
"$nvcc" --version | grep -q "release 13.0" || {
    [ $failed = 0 ] && awk '$5 != 0 { exit 1 }' "$now" &&
        echo "SKIP budget: it is for nvcc 13.0; no kernel spills" && exit 77
}
[ -s "$now" ] || { echo "FAIL: ptxas reported nothing" && exit 1; }
if awk '$5 != 0 { print "spills:", $0; bad = 1 } END { exit !bad }' "$now"; then failed=1; fi
if [ "$write" = --write ]; then
    awk '{ print $1, $2, $3, $4 }' "$now" | LC_ALL=C sort >"$budget"
    exit $failed
fi
awk -v budget="$budget" '
    BEGIN {
        while ((getline line < budget) > 0) {
            split(line, f, " ")
            registers[f[1] " " f[2]] = f[3]
            shared[f[1] " " f[2]] = f[4]
        }
    }
    { key = $1 " " $2 }
    !(key in registers) { print "not in " budget ": " key; bad = 1; next }
    $3 > registers[key] || $4 > shared[key] {
        print "over budget: " $0 " (" registers[key] " registers, " shared[key] " bytes)"
        bad = 1
    }
    END { print NR " kernels"; exit bad }' "$now" || failed=1
exit $failed
