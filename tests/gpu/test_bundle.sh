#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The bundle is built, unpacked in an empty folder and started without a GPU; then the emulation's
# programs take the places of the device's, and run.sh does all it can do.
#
#   test_bundle.sh BUILD PARE GPU_BENCH SELFTEST NETS     programs: those of the emulation
set -u
build=${1:?BUILD} pare=${2:?PARE} bench=${3:?GPU_BENCH} selftest=${4:?SELFTEST} nets=${5:?NETS}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export CUDA_VISIBLE_DEVICES=-1 OMP_NUM_THREADS=1
status=0
say() { # NAME REASON: PASS where the reason is empty
    if [ -z "$2" ]; then echo "PASS $1"; else echo "FAIL $1: $2" && status=1; fi
}

sh "$here/bundle.sh" "$build" >"$folder/made" 2>&1
code=$?
[ $code != 77 ] || { tail -1 "$folder/made"; exit 77; }
say builds "$([ $code = 0 ] || tail -1 "$folder/made")"
[ $code = 0 ] || exit 1
most=$(sed -n "s/^size_most=\([0-9]*\).*/\1/p" "$here/bundle.sh")
say is_small "$([ "$(wc -c <"$build/pare-gpu.tar.xz")" -lt "$most" ] || cat "$folder/made")"
tar -C "$folder" -xJf "$build/pare-gpu.tar.xz" || exit 1
top=$folder/pare-gpu
cd "$top" || exit 1

# --- what is in it ---

bad=
for program in bin/*; do
    case $program in
    */pare) set -- version 0 ;;
    */gpu_bench) set -- --info 77 ;;
    */simt_selftest) set -- --check data/selftest.bin 77 ;;
    */make_net) set -- "" 2 ;;
    *) set -- "" 77 ;;
    esac
    for want; do :; done # the last one
    # shellcheck disable=SC2086 # all but the last
    "$program" ${1:-} ${3:+"$2"} >"$folder/out" 2>&1
    code=$?
    [ $code = "$want" ] || bad="$bad $program exits $code ($(tail -1 "$folder/out"));"
done
say programs_start "$bad"
say no_gpu_is_said "$(bin/simt_selftest --check data/selftest.bin | grep -q '^SKIP: no GPU: .' || echo no)"
foreign=$(for f in bin/*; do ldd "$f"; done | grep -vE "$top/(bin/\.\./)?lib/" |
    grep -vE 'linux-vdso|/ld-linux|lib(c|m|pthread|dl|rt|resolv|util|mvec)\.so' | sort -u | head -3)
say libraries_are_inside "$foreign"
say paths_of_this_machine "$(grep -rlF -e "$root" -e "$build" . | head -3)"
say rpath "$(for f in bin/* lib/libpare_gpu.so; do readelf -d "$f" | grep -E 'RPATH|RUNPATH' |
    grep -vF '(RPATH)              Library rpath: [$ORIGIN/../lib]'; done)"
runtimes=$(grep -rlF cudaErrorSyncDepthExceeded bin lib | tr '\n' ' ') # each names its errors
say one_cuda_runtime "$([ "$runtimes" = "lib/libcudart.so.13 " ] || echo "in ${runtimes:-no file}")"
bad=
for file in bin/*; do
    [ "$file" != bin/test_simt_warp ] || continue # takes nothing of it
    readelf -d "$file" | grep -qF '(NEEDED)             Shared library: [libpare_gpu.so]' || bad="$bad $file"
done
say programs_share_the_product "$bad"
glibc=$(sed -n 's/^glibc=//p' MANIFEST)
say oldest_glibc "$([ "$(printf '%s\n' "$glibc" 2.36 | sort -V | tail -1)" = 2.36 ] || echo "$glibc")"
python=$(command -v python3)
codes=$(sed -n 's/^code=//p' MANIFEST | tr ',' '\n' | sort -n | paste -sd, -)
codes=$(echo "compute_${codes%%,*},$codes" | sed 's/,/ sm_/g')
bad=
# all of it in the library; in a program its own kernels', if it has some
[ -z "$python" ] || "$python" "$here/fatbin.py" lib/libpare_gpu.so bin/* >"$folder/code" || bad=" unreadable;"
[ -z "$python" ] || while read -r file found; do
    case $file:$found in
    lib/*: | bin/simt_selftest: | bin/test_simt_*:) found=none ;;
    bin/*:) continue ;;
    esac
    [ "$found" = "$codes" ] || bad="$bad $file has $found;"
done <"$folder/code"
say code_for_each_architecture "$bad"

# --- run.sh without a GPU, then on the emulation ---

valid() { [ -z "$python" ] || "$python" -c 'import json, sys; json.load(open(sys.argv[1]))' "$1"; }
sh run.sh >"$folder/out" 2>&1
say skips_without_gpu "$([ $? = 0 ] && tail -1 "$folder/out" | grep -q '^0 passed, 0 failed, 6 skipped' ||
    tail -2 "$folder/out")"
say json_without_gpu "$(valid results/*-none/results.json 2>&1 | tail -1)"

cp "$pare" bin/pare && cp "$bench" bin/gpu_bench && cp "$selftest" bin/simt_selftest
rm -f bin/test_*
cp "$nets" bin/test_cuda_nets
mkdir "$folder/tools"
printf '#!/bin/sh\necho "========= Error: Device not supported. Please refer to the documentation"; exit 1\n' \
    >"$folder/tools/compute-sanitizer"
chmod +x "$folder/tools/compute-sanitizer"
export PARE_GPU_TINY=1 PARE_NETS=
PATH=$folder/tools:$PATH sh run.sh --only selftest,sanitizer,bench,nets --out "$folder/r" >"$folder/out" 2>&1
say runs_on_the_emulation "$([ $? = 0 ] || grep -E '^FAIL|failed' "$folder/out" | head -3)"
say refusal_is_a_skip "$([ "$(grep -c '^SKIP .*: .*Device not supported' "$folder/out")" = 8 ] ||
    grep sanitizer "$folder/out")"
say last_line "$(tail -1 "$folder/out" | grep -E '^[1-9][0-9]* passed, 0 failed, [0-9]+ skipped$' >/dev/null ||
    tail -1 "$folder/out")"
made=$(echo "$folder"/r/*-emulated-device)
say benches "$(awk -f "$here/schema.awk" "$made/benches.csv")"
say nets_in_three_types "$([ "$(awk -F, '/^net,.*,pare,/ && $6 > 0 && $9 > 0' "$made/benches.csv" | wc -l)" = 6 ] ||
    { grep '^net' "$made/benches.csv" | tr '\n' ' '; echo no; })"
say ratios "$([ "$(awk -F, 'NF == 9 && $9 > 0' "$made/ratios.csv" | wc -l)" -ge 10 ] || head -2 "$made/ratios.csv")"
say json "$(valid "$made/results.json" 2>&1 | tail -1)"

# --- the first minutes, and going on with them ---

# Nsight Compute writes down what it is given, and starts the smallest net; an empty folder is cuBLAS's of PyPI
cat >"$folder/tools/ncu" <<END
#!/bin/sh
echo "PARE_CUBLAS=\$PARE_CUBLAS \$*" >>"$folder/ncu"
case \$* in *vit*) ;; *) exit 0 ;; esac
until [ "\$1" = bin/pare ]; do shift; done
exec "\$@"
END
chmod +x "$folder/tools/ncu"
packages=$([ -z "$python" ] || PYTHONUSERBASE=$folder/user "$python" -c 'import site; print(site.getusersitepackages())')
mkdir -p "${packages:-$folder/none}/nvidia/cu13/lib"
PYTHONUSERBASE=$folder/user PATH=$folder/tools:$PATH sh run.sh --first --out "$folder/1" >"$folder/out" 2>&1
say first_minutes "$([ $? = 0 ] || { grep -E '^FAIL' "$folder/out" | head -3; tail -1 "$folder/out"; })"
say resnet50_is_made "$([ "$(grep -c '^PASS net/resnet50\.' "$folder/out")" = 6 ] || { grep resnet50 "$folder/out"; echo no; })"
ncu=$(cat "$folder/ncu")
say kernels_are_profiled "$([ "$(grep -c '^PASS ncu\.\(s8\|f16\|attention\)$' "$folder/out")" = 3 ] && [ "$(echo "$ncu" | grep -c \
    ' bin/pare bench .*\(int8\|fp16\)\.onnx .*--no-tune .*--cache .*/work/cache$')" = 3 ] || { grep ncu "$folder/out"; echo "$ncu"; })"
hot=$(echo "$ncu" | sed -n '1s/.* -k regex:\([^ ]*\) .*/\1/p')
bad=
for kernel in gemm_tile wgmma_tiles wgmma_swap wgmma_sparse_tiles tcgen_tiles stem_tile stem_pool sparse_tile attention_flash attention_int8 \
    separable; do
    echo $kernel | grep -qE -e "$hot" && grep -q " _Z[0-9]*${kernel}I" "$root/tests/cuda/budget.txt" || bad="$bad $kernel"
done
say hot_kernels_are_profiled "$bad"
[ -z "$python" ] || say cublas_is_found "$(echo "$ncu" | grep -q "^PARE_CUBLAS=[^ ]*$packages/nvidia/cu13/lib" || echo "$ncu" | head -1)"
mkdir "$folder/in" && tar -C "$folder/in" -xzf "$folder/1/results.tgz"
say archive "$([ -s "$(echo "$folder"/in/*/nets/resnet50.s8.2.profile.json)" ] && [ -s "$(echo "$folder"/in/*/results.json)" ] ||
    (cd "$folder/in" && find . -type f | head -5 | tr '\n' ' '))"
grep -v '^PASS test_cuda_nets$' "$(echo "$folder"/in/*/run.txt)" >"$folder/run" && cp "$folder/run" "$(echo "$folder"/in/*/run.txt)"
tar -C "$folder/in" -czf "$folder/cut.tgz" "$(ls "$folder/in")"
PATH=$folder/tools:$PATH sh run.sh --first --resume "$folder/cut.tgz" --out "$folder/2" >"$folder/out" 2>&1
say resumes "$([ $? = 0 ] && [ "$(grep -c '^PASS' "$folder/out")" = 1 ] && grep -q '^PASS test_cuda_nets$' "$folder/out" ||
    { grep -E '^(PASS|FAIL)' "$folder/out" | head -5 | tr '\n' ' '; tail -1 "$folder/out"; })"
sh run.sh --first --resume "$folder/out" >"$folder/err" 2>&1
say resume_of_something_else "$([ $? = 2 ] && grep -q 'is no results.tgz$' "$folder/err" || head -1 "$folder/err")"

# --- failures, time ---

printf 'x' | dd of=data/selftest.bin bs=1 seek=100 conv=notrunc 2>/dev/null
printf '#!/bin/sh\nshift 6\nexec "$@"\n' >"$folder/tools/compute-sanitizer"
PATH=$folder/tools:$PATH sh run.sh --only selftest,sanitizer --out "$folder/f" >"$folder/out" 2>&1
code=$?
say failure_is_told "$([ $code = 1 ] && grep -q '^FAIL selftest/int_as_float: .*recorded' "$folder/out" ||
    head -3 "$folder/out")"
say goes_on_after_a_failure "$(grep -q '^PASS racecheck/test_cuda_nets$' "$folder/out" ||
    grep racecheck "$folder/out")"
rm bin/test_* # one waits for the one after it: both must run at a time
printf '#!/bin/sh\nfor _ in $(seq 100); do [ ! -e %s/b ] || { sleep 0.3; exit 0; }; sleep 0.1; done; exit 5\n' \
    "$folder" >bin/test_a
printf '#!/bin/sh\ntouch %s/b; echo bad luck; exit 3\n' "$folder" >bin/test_b
printf '#!/bin/sh\necho no device; exit 77\n' >bin/test_c
chmod +x bin/test_*
want="PASS test_a|FAIL test_b: exit 3; bad luck|SKIP test_c: no device|"
sh run.sh --only tests --jobs 2 --out "$folder/j" >"$folder/out" 2>&1
say tests_run_at_once "$([ "$(grep -E '^[A-Z]+ test_[abc](:|$)' "$folder/out" | tr '\n' '|')" = "$want" ] || cat "$folder/out")"
PATH=$folder/tools:$PATH sh run.sh --first --resume "$folder/1/results.tgz" --jobs 2 --out "$folder/k" >"$folder/out" 2>&1
say first_runs_all_tests "$([ "$(grep -E '^[A-Z]+ test_' "$folder/out" | tr '\n' '|')" = "$want" ] || cat "$folder/out")"
printf '#!/bin/sh\nexec sleep 60\n' >bin/test_a
sh run.sh --only tests --jobs 1 --limit 4 --out "$folder/m" >"$folder/out" 2>&1
say a_test_is_cut_off "$(grep -q '^SKIP test_a: not done after [1-4] s$' "$folder/out" &&
    grep -q '^SKIP test_b: the time limit of 4 s is reached$' "$folder/out" || cat "$folder/out")"
sh run.sh --jobs 0 >"$folder/out" 2>&1
say jobs_of_none "$([ $? = 2 ] && grep -q 'jobs 0: a number from 1 on$' "$folder/out" || cat "$folder/out")"
sh run.sh --limit 0 --out "$folder/l" >"$folder/out" 2>&1
say time_limit "$([ "$(grep -c 'the time limit of 0 s is reached' "$folder/out")" = 6 ] || cat "$folder/out")"

cp MANIFEST "$folder/MANIFEST" && sed -i 's/^glibc=.*/glibc=9.9/' MANIFEST
sh run.sh >"$folder/out" 2>&1
say old_glibc "$(grep -q '^SKIP run: the programs need glibc 9.9, this machine has 2' "$folder/out" ||
    cat "$folder/out")"
cp "$folder/MANIFEST" MANIFEST

# --- PyTorch's side, on the CPU, where a Python has it ---

torch=${PARE_TORCH_PYTHON:-$python}
if [ -n "$torch" ] && "$torch" -c 'import torch' 2>/dev/null; then
    cp "$made/benches.csv" "$folder/t.csv"
    "$torch" scripts/torch_bench.py --csv "$folder/t.csv" --device cpu --tiny >"$folder/out" 2>&1
    say torch "$([ $? = 0 ] || tail -1 "$folder/out")"
    say torch_lines "$(awk -f "$here/schema.awk" "$folder/t.csv")"
elif [ -n "$python" ]; then
    say torch_parses "$("$python" -m py_compile scripts/*.py 2>&1 | tail -1)"
    echo "SKIP torch: no Python here has PyTorch (PARE_TORCH_PYTHON names one)"
fi
exit $status
