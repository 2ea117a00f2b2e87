#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The benchmark of kernels on the emulation: its lines, its limits, a call that fails. The
# emulation's clock stands still: no time is judged. usage: test_bench.sh GPU_BENCH
set -u
bench=${1:?GPU_BENCH}
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0
say() { # NAME REASON: PASS where the reason is empty
    if [ -z "$2" ]; then echo "PASS $1"; else echo "FAIL $1: $2" && status=1; fi
}

SIMT_LEAKS=1 "$bench" --tiny --csv "$folder/a.csv" rounding conv train matmul sparse memory >"$folder/out" 2>&1
say runs "$([ $? = 0 ] || tail -2 "$folder/out")"
say rounding "$(grep -q '^PASS rounding: cuBLASLt rounds s8 results halves to even$' "$folder/out" ||
    cat "$folder/out")"
say rows "$(awk -f "$here/schema.awk" "$folder/a.csv")"
count() { grep -c "$1" "$folder/a.csv"; }
say every_type_is_there "$([ "$(count ',s8,pare:')" -gt 2 ] && [ "$(count ',f16,pare:')" -gt 2 ] &&
    [ "$(count ',f32,pare:')" -gt 2 ] && [ "$(count ',f8e4m3,pare:')" -gt 2 ] ||
    cut -d, -f1-5 "$folder/a.csv" | grep pare: | tr '\n' ' ')"
say sparse_kernels_are_there "$([ "$(count '^sparse,.*pare:cuda_matmul_sparse_64x64,')" = 2 ] &&
    [ "$(count '^sparse,2:4 conv.*pare:cuda_conv_sparse_64x64,')" = 2 ] ||
    grep ^sparse "$folder/a.csv" | cut -d, -f1-5 | tr '\n' ' ')"
say training_is_there "$([ "$(count '^train,ConvGrad.*,tf32,pare:cuda_conv_grad')" = 4 ] &&
    [ "$(count '^train,')" = 18 ] && [ "$(count '^train,.*_tile,')" = 9 ] ||
    grep ^train "$folder/a.csv" | cut -d, -f1-5 | tr '\n' ' ')"
say memory_is_there "$([ "$(count '^memory,copy,5000,f\(32\|16\),cudaMemcpy,[1-9]')" = 2 ] &&
    [ "$(count '^memory,histogram and range,5000,f\(32\|16\),pare,[1-9]')" = 2 ] &&
    [ "$(count '^memory,range,5000,f\(32\|16\),pare,[1-9]')" = 2 ] || grep ^memory "$folder/a.csv")"
say cublaslt_is_there "$([ "$(count ',cublaslt')" = 15 ] || echo "$(count ',cublaslt') lines")"

SIMT_DNN=present SIMT_LEAKS=1 "$bench" --tiny --csv "$folder/d.csv" conv train >"$folder/out" 2>&1
say cudnn_runs "$([ $? = 0 ] || tail -2 "$folder/out")"
say cudnn_rows "$(awk -f "$here/schema.awk" "$folder/d.csv")"
say cudnn_is_there "$([ "$(grep -c '^conv,.*,f16,cudnn_conv_' "$folder/d.csv")" = 4 ] &&
    [ "$(grep -c '^train,.*,cudnn_conv_' "$folder/d.csv")" = 30 ] ||
    grep -o '^[a-z]*,.*,cudnn_conv_.' "$folder/d.csv" | tr '\n' ' ')"

"$bench" --tiny --seconds 0 --csv "$folder/b.csv" matmul >"$folder/out"
say no_time "$(grep -q '^SKIP matmul: 0 measured, 0 failed, 4 not' "$folder/out" || cat "$folder/out")"

failures=0
for n in 40 60 90; do
    rm -f "$folder/c.csv"
    SIMT_FAIL=$n:2 "$bench" --tiny --csv "$folder/c.csv" conv matmul >"$folder/out" 2>&1
    code=$?
    [ $code -le 1 ] || say "fail_at_$n" "exit $code"
    say "fail_at_$n" "$(awk -f "$here/schema.awk" "$folder/c.csv")"
    grep -q 'failed: .*memory' "$folder/c.csv" && [ $code = 1 ] && failures=$((failures + 1))
done
say failures_are_lines "$([ $failures -gt 0 ] || echo "none was written down")"
exit $status
