#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs everything that needs a GPU, from an unpacked bundle; README.md beside this says more.
#
#   sh run.sh [OPTION...]
#     --short | --long     a choice that takes some 8 minutes (default), or everything
#     --first              the first minutes on a device, in an order that is worth most when they are cut off:
#                          selftest, all tests, eight sanitizer runs, ResNet-50 in INT8 and FP16 at batch 128 and 1
#                          with profiles, hot kernels in Nsight Compute, gpu_bench, PyTorch; each step is capped
#     --resume FILE        results.tgz of an earlier --first: what passed in it is not run again
#     --limit SECONDS      starts nothing afterwards, and ends what runs (short: 560; long: none)
#     --only STAGE,...     of selftest tests sanitizer bench nets torch
#     --jobs N             tests and sanitizers that run at a time (default: the number of cores, at most 10)
#     --models DIR         also nets NAME.onnx of DIR: resnet50, bert_base; "make": PyTorch makes them
#     --python FILE        a Python with PyTorch (default: python3)
#     --out DIR            where results go (default: results)
#
# Prints PASS|FAIL|SKIP name: reason, "N passed, N failed, N skipped" last; exit 1 where one failed.
# Results: DIR/DATE-DEVICE/ with run.txt, benches.csv, ratios.csv, results.json, device.txt, nets/, logs/; of --first also
# DIR/results.tgz, which holds them and is written again after each step.
set -u
cd "$(dirname "$0")" || exit 2
root=$PWD
long=0 limit= only="selftest tests sanitizer bench nets torch" models= python=python3 out=results first=0 resume= jobs=
tiny=${PARE_GPU_TINY:-} # for the test of this file: shapes for the emulation

while [ $# -gt 0 ]; do
    case $1 in
    --short) long=0 ;;
    --long) long=1 ;;
    --first) first=1 only=first ;;
    --resume) resume=${2:?--resume FILE}; shift ;;
    --limit) limit=${2:?--limit SECONDS}; shift ;;
    --jobs) jobs=${2:?--jobs N}; shift ;;
    --only) only=$(echo "${2:?--only STAGE,...}" | tr , ' '); shift ;;
    --models) models=${2:?--models DIR}; shift ;;
    --python) python=${2:?--python FILE}; shift ;;
    --out) out=${2:?--out DIR}; shift ;;
    *) sed -n 's/^# \{0,1\}//p' "$0" | sed -n '3,20p' >&2; exit 2 ;;
    esac
    shift
done
[ -n "$limit" ] || { [ $long = 1 ] && limit=86400 || limit=560; }
[ -z "$resume" ] || [ $first = 1 ] || { echo "run.sh: --resume goes with --first" >&2; exit 2; }
[ -z "$resume" ] || tar -tzf "$resume" >/dev/null 2>&1 || { echo "run.sh: $resume is no results.tgz" >&2; exit 2; }
[ -n "$jobs" ] || { jobs=$(nproc 2>/dev/null || echo 1); [ "$jobs" -le 10 ] || jobs=10; }
case $jobs in *[!0-9]* | 0*) echo "run.sh: --jobs $jobs: a number from 1 on" >&2; exit 2 ;; esac
start=$(date +%s)
left() { echo $((start + limit - $(date +%s))); }
wants() { case " $only " in *" $1 "*) return 0 ;; *) return 1 ;; esac }

here=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/^glibc //')
need=$(sed -n 's/^glibc=//p' MANIFEST)
if [ "$(printf '%s\n' "$need" "$here" | sort -V | tail -1)" != "$here" ]; then
    echo "SKIP run: the programs need glibc $need, this machine has ${here:-none}"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi

# Folders of PyPI's CUDA libraries: tests and nets use cuBLASLt and cuDNN without a toolkit, too
libraries=$("$python" - <<'PYTHON' 2>/dev/null
import glob, os, site
roots = site.getsitepackages() + [site.getusersitepackages()]
found = [d for r in roots for d in glob.glob(os.path.join(r, "nvidia", "cu13", "lib"))
         + glob.glob(os.path.join(r, "nvidia", "cublas", "lib"))
         + glob.glob(os.path.join(r, "nvidia", "cudnn", "lib"))]
print(":".join(found))
PYTHON
)
PARE_CUBLAS=${PARE_CUBLAS:+$PARE_CUBLAS:}$libraries
PARE_CUDNN=${PARE_CUDNN:+$PARE_CUDNN:}$libraries
export PARE_CUBLAS PARE_CUDNN

# --- the device ---

info=$(timeout 120 bin/gpu_bench --info 2>&1)
have=$?
fact() { echo "$info" | sed -n "s/^$1=//p"; }
smi() { # FIELD: what nvidia-smi says of it now
    command -v nvidia-smi >/dev/null 2>&1 || return
    nvidia-smi --id=0 --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -1
}
device=$(fact device)
[ -n "$device" ] || device=none
name=$(date -u +%Y-%m-%d)-$(echo "$device" | tr -c 'A-Za-z0-9\n' - | tr -s - | sed 's/^-//; s/-$//')
mkdir -p "$out/$name/logs" || exit 2
archive=$(cd "$out" && pwd)/results.tgz
out=$(cd "$out/$name" && pwd)
logs=$out/logs
work=$out/work
mkdir -p "$work"
csv=$out/benches.csv
results=$out/run.txt
: >"$results"
echo "suite,case,batch,type,who,median_us,min_us,spread_percent,rate,unit,note" >"$csv"
passed_before=$work/passed
: >"$passed_before"
if [ -n "$resume" ]; then # its lines and rows come first
    mkdir -p "$work/before" && tar -C "$work/before" -xzf "$resume" || exit 2
    grep -h '^PASS ' "$work/before"/*/run.txt >"$passed_before"
    cp "$passed_before" "$results"
    tail -q -n +2 "$work/before"/*/benches.csv >>"$csv"
    for part in logs nets; do cp -r "$work/before"/*/$part "$out/" 2>/dev/null; done
fi
say() { printf '%s\n' "$*" | tee -a "$results"; }
{
    echo "$info"
    date -u +date=%Y-%m-%dT%H:%M:%SZ
    echo "driver=$(smi driver_version)"
    echo "clocks_before=$(smi clocks.sm,clocks.mem,power.draw,temperature.gpu)"
    echo "clocks_max=$(smi clocks.max.sm,clocks.max.mem,power.limit)"
} >"$out/device.txt"
[ $have = 0 ] || why=$(echo "$info" | tail -1 | sed 's/^[A-Z]* *:* *//')

# stage NAME: true where it is wanted and can run
stage() {
    wants "$1" || return 1
    [ $have = 0 ] || { say "SKIP $1: $why"; return 1; }
    [ "$(left)" -gt 0 ] || { say "SKIP $1: the time limit of $limit s is reached"; return 1; }
}

# run_for CAP NAME COMMAND...: output to logs/NAME; ends after CAP seconds or the limit
run_for() {
    cap=$1 written=$logs/$2
    shift 2
    rest=$(left)
    [ "$rest" -lt "$cap" ] && cap=$rest
    [ "$cap" -gt 0 ] || return 125
    timeout -k 5 "$cap" "$@" >"$written" 2>&1
}

# at_once MOST RUN TELL: calls RUN WORD... for each line of the standard input, at most MOST at a time, each of which
# calls run_for once; then TELL WORD..., as soon as it and all lines before it have ended, with $code and $cap
at_once() {
    batch=$work/batch run=$2 tell=$3
    rm -rf "$batch"
    mkdir "$batch" && cat >"$batch/lines" || exit 2
    workers=
    for _ in $(seq "$1"); do
        take_lines </dev/null &
        workers="$workers $!"
    done
    trap 'kill $workers; exit 130' INT TERM
    line=0
    while read -r words; do
        line=$((line + 1))
        until [ -e "$batch/$line.ended" ] || [ "$(left)" -lt -10 ]; do sleep 0.1; done
        code=125
        [ ! -e "$batch/$line.ended" ] || read -r code cap <"$batch/$line.ended"
        # shellcheck disable=SC2086 # a list of words
        $tell $words
    done <"$batch/lines"
    wait
    trap - INT TERM
}
take_lines() { # those that no other worker has taken
    line=0
    while read -r words <&3; do
        line=$((line + 1))
        mkdir "$batch/$line" 2>/dev/null || continue
        # shellcheck disable=SC2086 # a list of words
        $run $words 3<&-
        echo "$? $cap" >"$batch/$line/ended"
        mv "$batch/$line/ended" "$batch/$line.ended"
    done 3<"$batch/lines"
}

# verdict NAME STATUS LOG: one line for a program
verdict() {
    case $2 in
    0) say "PASS $1" ;;
    77) say "SKIP $1: $(tail -1 "$3")" ;;
    124 | 137) say "SKIP $1: not done after $cap s" ;;
    125) say "SKIP $1: the time limit of $limit s is reached" ;;
    *) say "FAIL $1: exit $2; $(grep -v '^ *$' "$3" | tail -1 | cut -c1-300)" ;;
    esac
}

# lines NAME STATUS LOG: the program's own lines with a prefix, or one for all
lines() {
    if grep -E '^(PASS|FAIL|SKIP) [^:]' "$3" >"$logs/lines"; then
        sed "s|^\(....\) |\1 $1/|" "$logs/lines" | cut -c1-600 | tee -a "$results"
        [ "$2" = 0 ] || grep -q ^FAIL "$logs/lines" || verdict "$1" "$2" "$3"
    else
        verdict "$1" "$2" "$3"
    fi
}

# cmocka NAME STATUS LOG: a line for each case
cmocka() {
    awk -v name="$1" '
        /^\[ RUN / { said = "" ; next }
        /^\[       OK \]/ { print "PASS " name "/" $NF; n++; next }
        /^\[  SKIPPED \]/ && !over { print "SKIP " name "/" $NF ": " said; n++; next }
        /^\[  FAILED  \]/ && !over { print "FAIL " name "/" $NF ": " said; n++; next }
        /^\[==========\].*run/ || /^\[  PASSED  \]/ { over = 1 }
        /[^ ]/ && said == "" { said = substr($0, 1, 300) }
        END { exit !n }' "$3" | tee -a "$results" >"$logs/lines"
    cat "$logs/lines"
    if [ "$2" != 0 ] && ! grep -q ^FAIL "$logs/lines"; then verdict "$1" "$2" "$3"; fi
    [ -s "$logs/lines" ] || [ "$2" != 0 ] || verdict "$1" 0 "$3"
}

# --- stages ---

stage_selftest() {
    run_for 120 selftest bin/simt_selftest --check data/selftest.bin
    lines selftest $? "$logs/selftest"
}

tests() { for program in bin/test_*; do basename "$program"; done; }
test_run() { # NAME
    case $1 in
    *_large) PARE_NETS=large run_for 120 "$1" "bin/${1%_large}" ;;
    *) PARE_EXACT=$exact run_for $((120 + 600 * long)) "$1" "bin/$1" ;;
    esac
}
test_tell() { # NAME
    if [ "$code" = 125 ]; then verdict "$1" 125; else cmocka "$1" "$code" "$logs/$1"; fi
}
stage_tests() {
    [ $long = 1 ] && exact=slow || exact=
    { tests; [ ! -x bin/test_cuda_nets ] || echo test_cuda_nets_large; } | at_once "$jobs" test_run test_tell
}

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | tail -1)
sanitizers=$jobs # at a time
[ "$jobs" -le 8 ] || sanitizers=8
refused() { # LOG: did the tool refuse the device, before it found anything?
    grep -qiE 'device not supported|not supported on this|unable to|failed to initialize|requires|permission|internal error' "$1" &&
        ! grep -qE 'ERROR SUMMARY: [1-9]|RACECHECK SUMMARY: [1-9]|Invalid __|Race reported' "$1"
}
sanitize_run() { # TOOL PROGRAM WORD...
    tool=$1 program=$2
    shift 2
    PARE_EXACT=quick run_for $((40 + 560 * long + 80 * first)) "$tool.$program" "$sanitizer" --tool "$tool" \
        --error-exitcode 99 --print-limit 5 "bin/$program" "$@"
}
sanitize_tell() { # TOOL PROGRAM WORD...
    log=$logs/$1.$2
    if [ "$code" != 0 ] && [ "$code" != 124 ] && [ "$code" != 125 ] && refused "$log"; then
        say "SKIP $1/$2: $(grep -iE 'not supported|unable|failed|requires|permission|internal' "$log" |
            head -1 | cut -c1-200)"
    elif [ "$code" = 99 ]; then
        say "FAIL $1/$2: $(grep '^=========' "$log" | grep -v COMPUTE-SANITIZER | head -1 | cut -c1-300)"
    else
        verdict "$1/$2" "$code" "$log"
    fi
}
sanitized() { # lines of sanitize_run
    for tool in memcheck racecheck initcheck synccheck; do
        echo "$tool simt_selftest --check data/selftest.bin"
        for program in $(tests); do
            [ $long = 1 ] || case $program in # short: what kernels do with shared memory
                *simt_tensor | *cuda_histogram | *cuda_nets) ;;
                *) [ $tool = memcheck ] || continue ;;
            esac
            echo "$tool $program"
        done
    done
}
sanitize() { # LIST: prints lines of sanitize_run
    [ -n "$sanitizer" ] || { say "SKIP sanitizer: compute-sanitizer is not installed"; return; }
    $1 | at_once "$sanitizers" sanitize_run sanitize_tell
}
stage_sanitizer() { sanitize sanitized; }

stage_bench() { bench rounding memory sparse matmul conv train; }
bench() { # SUITE...
    [ $long = 1 ] && choice=--long || choice=
    [ -n "$tiny" ] && choice=--tiny
    for suite; do
        cap=$((90 + 3000 * long))
        [ "$(left)" -gt $cap ] || cap=$(left)
        # shellcheck disable=SC2086 # no choice is none
        run_for $((cap + 20)) "bench_$suite" bin/gpu_bench $choice --seconds $cap \
            --libraries "$libraries" --csv "$csv" $suite
        lines bench $? "$logs/bench_$suite"
    done
}

random_bytes() { head -c "$1" /dev/urandom; }
data_make() { # images of random bytes, as a data set for calibration
    [ -f "$work/narrow.h5" ] && return
    { printf '\000\000\010\003\000\000\000\100\000\000\000\034\000\000\000\034'; random_bytes 50176; } \
        >"$work/images"
    { printf '\000\000\010\001\000\000\000\100'; head -c 64 /dev/zero; } >"$work/labels"
    run_for 60 data bin/pare data import --idx "$work/images" "$work/labels" -o "$work/narrow.h5"
}
wide_make() { # [SIDE]
    [ -f "$work/wide.h5" ] && return
    header="{'descr': '|u1', 'fortran_order': False, 'shape': (16, 3, ${1:-224}, ${1:-224}), }"
    { printf '\223NUMPY\001\000\166\000%-117s\n' "$header"; random_bytes $((48 * ${1:-224} * ${1:-224})); } \
        >"$work/wide.npy"
    run_for 60 wide bin/pare data import --npy "$work/wide.npy" -o "$work/wide.h5"
}
convert() { # NET FILE PRECISION DATA: our file, or none
    to=$work/$1.$3.onnx
    [ -f "$to" ] && return
    case $3 in
    int8)
        [ -f "$4" ] || return 1
        run_for 120 "quantize.$1" bin/pare quantize "$2" -o "$to" --quiet --data "$4" --samples 16 \
            --method minmax --device cuda
        ;;
    fp16) run_for 120 "fp16.$1" bin/pare quantize "$2" -o "$to" --quiet --precision fp16 ;;
    esac
}
net_line() { # NET BATCH TYPE JSON WHO
    awk -v head="net,$1,$2,$3,$5" '
        function number() { v = $0; sub(/.*: /, "", v); sub(/,$/, "", v); return v + 0 }
        /"median":/ { median = number() }
        /"min":/ && least == "" { least = number() } # of latency, the first
        /"throughput_per_s":/ { rate = number() }
        /"coefficient_of_variation":/ { spread = number() }
        END { printf "%s,%.3f,%.3f,%.1f,%.3f,1/s,\n", head, 1e3 * median, 1e3 * least, 100 * spread, rate }
        ' "$4" >>"$csv"
}
net_bench() { # NET FILE TYPE BATCH SHAPES [no_pdl: no kernel begins before the one ahead of it has ended]
    log=$1.$3.$4${6:+.$6} who=${6:-pare}
    pace="--duration $((1 + 2 * long))"
    [ -n "$tiny" ] && pace="--duration 0 --iterations 2 --warmup 0 --no-tune"
    # shellcheck disable=SC2086 # a list of words
    run_for $((30 + 30 * long)) "bench.$log" env ${6:+PARE_CUDA_PDL=0} bin/pare bench "$2" --device cuda --shapes "$5" --quiet \
        $pace ${profile:-} --cache "$work/cache" --json "$out/nets/$log.json"
    code=$?
    if [ $code = 0 ]; then net_line "$1" "$4" "$3" "$out/nets/$log.json" "$who"; else
        [ $code = 124 ] || [ $code = 125 ] ||
            echo "net,$1,$4,$3,$who,,,,,,failed: exit $code; $(tail -1 "$logs/bench.$log" | tr ',"' ';;')" >>"$csv"
    fi
    verdict "net/$log" $code "$logs/bench.$log"
}
net_batches() { # NET FILE DATA SHAPE-WITH-B
    for type in f32 f16 s8; do
        file=$2
        case $type in
        f16) file=$work/$1.fp16.onnx; convert "$1" "$2" fp16 "$3" ;;
        s8) file=$work/$1.int8.onnx; convert "$1" "$2" int8 "$3" ;;
        esac
        if [ ! -f "$file" ]; then
            [ "$(left)" -gt 0 ] || { say "SKIP net/$1.$type: the time limit of $limit s is reached"; continue; }
            [ -n "$3" ] || { say "SKIP net/$1.$type: no data to calibrate it on"; continue; }
            say "FAIL net/$1.$type: $(tail -1 "$logs"/*."$1" 2>/dev/null | cut -c1-300)"
            continue
        fi
        for batch in $batch_list; do
            net_bench "$1" "$file" $type "$batch" "$(echo "$4" | sed "s/B/$batch/g")"
        done
    done
}
models_make() {
    models=$work/models
    if ! "$python" -c 'import onnx, onnxruntime, onnxscript, torch, torchvision' >"$logs/export" 2>&1; then
        say "SKIP export: $python: $(tail -1 "$logs/export")"
        return
    fi
    for net in resnet50 bert_base; do
        run_for 200 "export.$net" "$python" scripts/export_models.py "$models" --only $net
        verdict "export/$net" $? "$logs/export.$net"
    done
}
stage_nets() {
    mkdir -p "$out/nets"
    batch_list="1 32"
    [ $long = 1 ] && batch_list="1 8 32 128"
    [ -n "$tiny" ] && batch_list=2
    zoo="mlp cnn resnet mobilenet vit"
    [ -n "$tiny" ] && zoo="mlp cnn"
    data_make || say "FAIL data: $(tail -1 "$logs/data")"
    for net in $zoo; do
        net_batches "$net" "datasets/zoo/$net.onnx" "$work/narrow.h5" input:Bx1x28x28
    done
    [ "$models" != make ] || models_make
    if [ -f "$models/resnet50.onnx" ]; then
        wide_make || say "FAIL wide: $(tail -1 "$logs/wide")"
        net_batches resnet50 "$models/resnet50.onnx" "$work/wide.h5" input:Bx3x224x224
    fi
    [ ! -f "$models/bert_base.onnx" ] || net_batches bert_base "$models/bert_base.onnx" "" \
        "input_ids:Bx128,attention_mask:Bx128,token_type_ids:Bx128"
}

stage_torch() {
    if ! "$python" -c 'import torch; assert torch.cuda.is_available()' >"$logs/torch" 2>&1; then
        say "SKIP torch: $python has no PyTorch with CUDA"
        return
    fi
    grep -qE '^(conv|matmul),' "$csv" || bench matmul conv # PyTorch takes the cases of their lines
    cap=$((150 + 3000 * long))
    [ "$(left)" -gt $cap ] || cap=$(left)
    [ $long = 1 ] && choice=--long || choice=
    # shellcheck disable=SC2086 # no choice is none
    run_for $((cap + 20)) torch "$python" scripts/torch_bench.py --csv "$csv" --seconds $cap $choice
    lines torch $? "$logs/torch"
}

# --- the first minutes ---

keep() { tar -C "$(dirname "$out")" --exclude=work -czf "$archive.part" "$name" && mv "$archive.part" "$archive"; }
passed() { grep -q "^PASS $1\$" "$passed_before"; }
step() { # NAME CAP COMMAND...: unless it passed before
    passed "$1" && return
    label=$1 cap=$2
    shift 2
    run_for "$cap" "$label" "$@"
    verdict "$label" $? "$logs/$label"
    keep
}
first_tests() { for program in $(tests); do passed "$program" || echo "$program"; done; }
first_tell() { verdict "$1" "$code" "$logs/$1"; }
first_sanitized() { # lines of sanitize_run
    for pair in memcheck:simt_tensor memcheck:cuda_product memcheck:cuda_nets racecheck:simt_tensor \
        racecheck:cuda_histogram racecheck:cuda_norm initcheck:cuda_softmax synccheck:cuda_reduce; do
        tool=${pair%:*} program=test_${pair#*:}
        [ ! -x "bin/$program" ] || passed "$tool/$program" || echo "$tool $program"
    done
}
hot='^(gemm_tile|sparse_tile|wgmma_.*|tcgen_.*|stem_.*|attention_.*|separable)$' # kernels that take a net's time
ncu_net() { # NAME MOST KERNELS NET SHAPES: Nsight Compute of the first launches of these kernels, as timing has chosen them
    label=ncu.$1
    passed "$label" && return
    pace="--duration 0 --iterations 1 --warmup 0 --cache $work/cache"
    # shellcheck disable=SC2086 # a list of words
    [ -z "$resume" ] || # the table of timings stayed where the earlier call ran
        run_for 60 "tune.$label" bin/pare bench "$4" --device cuda --shapes "$5" $pace
    # shellcheck disable=SC2086 # a list of words
    run_for 60 "$label" ncu --clock-control none -k "regex:$3" -c "$2" --section SpeedOfLight --section WarpStateStats \
        --section Occupancy bin/pare bench "$4" --device cuda --no-tune --shapes "$5" $pace
    code=$?
    if [ $code = 0 ] && grep -q 'No kernels were profiled' "$logs/$label"; then
        say "FAIL $label: no launch of $3"
    else
        verdict "$label" $code "$logs/$label"
    fi
    keep
}
first_wants_nets() { # something that reads them did not pass before
    ! command -v ncu >/dev/null 2>&1 || { passed ncu.s8 && passed ncu.f16; } || return 0
    for label in s8.$many f16.$many s8.1 f16.1 s8.1.no_pdl f16.1.no_pdl; do
        passed "net/resnet50.$label" || return 0
    done
    return 1
}
stage_first() {
    side=224 width=64 many=128
    [ -z "$tiny" ] || { side=32 width=8 many=2; }
    picture=input:Bx3x${side}x$side
    mkdir -p "$out/nets"
    step selftest 60 bin/simt_selftest --check data/selftest.bin
    exact=quick
    first_tests | at_once "$jobs" test_run first_tell
    keep
    sanitize first_sanitized
    keep
    if first_wants_nets; then
        run_for 60 make_net bin/make_net "$work/resnet50.onnx" $side $width || verdict make_net $? "$logs/make_net"
        wide_make $side
        convert resnet50 "$work/resnet50.onnx" fp16
        convert resnet50 "$work/resnet50.onnx" int8 "$work/wide.h5"
    fi
    for batch in $many 1; do
        for type in s8.int8 f16.fp16; do
            label=resnet50.${type%.*}.$batch
            passed "net/$label" && continue
            profile="--profile $out/nets/$label.profile.json"
            net_bench resnet50 "$work/resnet50.${type#*.}.onnx" ${type%.*} $batch "$(echo $picture | sed "s/B/$batch/")"
            keep
        done
    done
    profile=
    for type in s8.int8 f16.fp16; do
        passed "net/resnet50.${type%.*}.1.no_pdl" && continue
        net_bench resnet50 "$work/resnet50.${type#*.}.onnx" ${type%.*} 1 "$(echo $picture | sed s/B/1/)" no_pdl
        keep
    done
    if command -v ncu >/dev/null 2>&1; then
        for type in s8.int8 f16.fp16; do
            ncu_net "${type%.*}" 27 "$hot" "$work/resnet50.${type#*.}.onnx" "$(echo $picture | sed "s/B/$many/")"
        done
        passed ncu.attention || convert vit datasets/zoo/vit.onnx fp16
        ncu_net attention 4 '^attention_.*$' "$work/vit.fp16.onnx" input:${many}x1x28x28
    else
        say "SKIP ncu: Nsight Compute is not installed"
    fi
    for suite in memory:20 matmul:40 conv:60; do
        step bench_${suite%:*} $((${suite#*:} + 15)) bin/gpu_bench ${tiny:+--tiny} --seconds ${suite#*:} \
            --libraries "$libraries" --csv "$csv" ${suite%:*}
    done
    only="first torch"
    if stage torch; then stage_torch; keep; fi
}

for each in selftest tests sanitizer bench nets torch first; do
    stage $each && stage_$each
done

# --- results ---

echo "clocks_after=$(smi clocks.sm,clocks.mem,power.draw,temperature.gpu)" >>"$out/device.txt"
rm -f "$logs/lines"
rm -rf "$work"
awk -f scripts/ratios.awk "$csv" >"$out/ratios.csv"
awk -f scripts/json.awk "$out/device.txt" "$results" "$csv" >"$out/results.json"
passed=$(grep -c '^PASS ' "$results")
failed=$(grep -c '^FAIL ' "$results")
skipped=$(grep -c '^SKIP ' "$results")
[ $first = 0 ] || keep
echo "results: ${out#"$root"/}"
say "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
