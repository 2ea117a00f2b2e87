#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The selftest on the emulation: agrees with the committed hashes and with its own recording, finds
# planted wrong wrappers, refuses foreign files, and has a row for every wrapper.
#
#   selftest.sh SELFTEST PLANTED OTHER...   builds of simt_selftest; OTHER: with sanitizers, checker
#   selftest.sh SELFTEST --write            writes tests/gpu/selftest.txt
set -u
good=${1:?SELFTEST} wrong=${2:?PLANTED}
shift 2
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0
say() { # NAME REASON: PASS where the reason is empty
    if [ -z "$2" ]; then echo "PASS $1"; else echo "FAIL $1: $2" && status=1; fi
}

"$good" --hashes >"$folder/hashes" || { echo "FAIL hashes: exit $?"; exit 1; }
[ "$wrong" = --write ] && exec cp "$folder/hashes" "$here/selftest.txt"
say hashes "$(diff "$here/selftest.txt" "$folder/hashes" | tr '\n' ' ')"

"$good" --record "$folder/recording"
for schedule in newest random warp reversed; do
    for architecture in 90 100; do
        SIMT_ARCHITECTURE=$architecture SIMT_SCHEDULE=$schedule "$good" --check "$folder/recording" >"$folder/out"
        say "schedule_${schedule}_$architecture" "$(grep '^FAIL' "$folder/out" | head -3)"
    done
done

rows() { grep -cE "^($1)\(" "$here/selftest.inc"; } # of these kinds
for pair in 80:SM90\|WGMMA\|TCGEN 90:TCGEN 100:WGMMA; do
    SIMT_ARCHITECTURE=${pair%:*} "$good" --check "$folder/recording" >"$folder/out"
    say "architecture_${pair%:*}" "$(tail -1 "$folder/out" | grep -v " 0 failed, $(rows "${pair#*:}") skipped")"
done

for other in "$@"; do
    for architecture in 90 100; do
        SIMT_ARCHITECTURE=$architecture SIMT_SCHEDULE=random "$other" --check "$folder/recording" >"$folder/out" 2>&1
        status_of=$?
        say "$(basename "$other")_$architecture" "$([ $status_of = 0 ] || grep -v '^PASS' "$folder/out" | head -3)"
    done
done

"$wrong" --check "$folder/recording" >"$folder/out" && say planted "exit 0"
found=$(sed -n 's/^FAIL \([a-z0-9_]*\): .*recorded.*/\1/p' "$folder/out" | sort | tr '\n' ' ')
planted="dp4a float2half_near float2half_rn ldmatrix_x4_trans "
[ "$found" = "$planted" ] && found= || found="found $found of $planted"
say planted_wrappers_are_found "$found"

head -c 5000 "$folder/recording" >"$folder/cut"
"$good" --check "$folder/cut" >/dev/null 2>"$folder/err"
say cut_recording "$([ $? = 2 ] && grep -q "no recording" "$folder/err" || echo "was not refused")"

# Every function that kernels can call through simt.h is in a row.
missing=
for name in $(grep -ohE '\b(__[a-z][a-z0-9_]+|atomic[A-Z][A-Za-z]+|simt_(depend|mma|ldmatrix|cp_async|acquire|saturate|permute|xor|f8|floats|mbar|sync|tma|fence|wgmma|cluster|tmem|tcgen)[a-z0-9_]*|rsqrtf)\b *[(,<]' \
    "$root/tests/simt/simt_device.h" "$root/tests/simt/simt_scalar.h" "$root/runtime/cuda/device/simt.h" \
    "$root/tests/simt/simt_sm90.h" "$root/runtime/cuda/device/simt_sm90.cuh" "$root/runtime/cuda/device/dependent.cuh" \
    "$root/tests/simt/simt_sm100.h" "$root/runtime/cuda/device/simt_sm100.cuh" \
    "$root/tests/simt/simt_f8.h" "$root/runtime/cuda/device/simt_f8.cuh" |
    tr -d ' (,<' | sort -u); do
    case $name in
    __builtin_* | __attribute__ | __launch_bounds__ | __align__ | __cvta_* | __trap | \
        __low2float | __high2float | simt_mma_k* | \
        simt_mma_sp_k* | simt_cp_async_keep | simt_cp_async | simt_ldmatrix | simt_sync_warp | \
        simt_mbar_try | simt_wgmma_keep | simt_wgmma | simt_wgmma_int | simt_wgmma_float | \
        simt_cluster_read | simt_wgmma_sp | simt_wgmma_sp_int | simt_wgmma_sp_float | \
        simt_wgmma_fp8 | simt_mma_f8 | simt_f8 | simt_f8_to_halves | simt_tcgen_begin | simt_tmem_take | simt_tmem_give | \
        simt_tmem_read)
        continue ;; # no wrappers
    esac
    short=${name#simt_}
    grep -qE "\b($name|$short)\b" "$here/selftest.inc" "$here"/selftest*.cu* ||
        missing="$missing $name"
done
say every_wrapper_has_a_row "${missing:+no row in tests/gpu/selftest.inc for$missing}"
exit $status
