#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds pare and runs every test. Prints PASS|FAIL|SKIP name: reason for
# each and ends with "N passed, N failed, N skipped"; exit status 1 where one failed.
#
#   sh tests/run.sh [STAGE...]      release sanitize isa fuzz install cli python; default: all
#
# PARE_MODELS=DIR   third-party models; tests that need them are skipped where it is not set
# PARE_FUZZ_SECONDS=N  fuzz with another seed each time, for N seconds a target; where it is not set
#                   each makes the same inputs every time, in about 20 s. A failure's line has what
#                   the target said, the path of the input and, below 3 KB, the input in base64
# PARE_TEST_SLURM=1 run zoos on a Slurm of this machine, too: installs it, and starts its daemons from
#                   a folder of the test; where it is not set no daemon is installed
# PARE_TEST_BROWSER=1 look at reports in a browser, too: installs Chromium; where it is not set none is
#                   installed, and one that is there already serves
# PARE_PYTHON=FILE  a Python with onnx 1.20.1, onnxruntime, numpy, h5py, tritonclient and pillow
#                   for tests of the server, tensorboard; else build/venv is made
set -u
cd "$(dirname "$0")/.." || exit 1
. tools/packages.sh
stages=${*:-release sanitize isa fuzz install cli python}
wants() { case " $stages " in *" $1 "*) return 0 ;; *) return 1 ;; esac }

# shellcheck disable=SC2086 # lists of words
packages_install $packages_build $packages_demo $packages_test
# shellcheck disable=SC2086 # a list of words
[ "${PARE_TEST_SLURM:-}" != 1 ] || packages_install $packages_slurm
# shellcheck disable=SC2086 # a list of words
[ "${PARE_TEST_BROWSER:-}" != 1 ] || packages_install $packages_browser
mkdir -p build/tests
log=$PWD/build/tests
results=$log/results
: >"$results"
jobs=$(nproc 2>/dev/null || echo 2)
export OMP_WAIT_POLICY=passive # as many tests as cores run at once: no thread spins while it waits
ccache=
if command -v ccache >/dev/null 2>&1; then # a copy of the tree in another folder finds the objects, too
    ccache="-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache"
    export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$PWD}" CCACHE_NOHASHDIR=1
fi
say() { printf '%s\n' "$*" | tee -a "$results"; }
reason() { grep -E "error:|undefined reference|Error" "$1" | head -3 | tr '\n' ' ' | cut -c1-400; }

# build NAME FOLDER TARGET OPTION...: one line, and whether it worked
build() {
    name=$1 folder=$2 target=$3
    shift 3
    # shellcheck disable=SC2086 # a list of words
    if cmake -S . -B "$folder" -G Ninja $ccache "$@" >"$log/$name.log" 2>&1 &&
        ninja -C "$folder" "$target" >>"$log/$name.log" 2>&1; then
        say "PASS build/$name"
    else
        say "FAIL build/$name: $(reason "$log/$name.log")"
        return 1
    fi
}

# unit PREFIX FOLDER CTEST-OPTION...: every ctest entry, cmocka's cases one by one
unit() {
    prefix=$1 folder=$2
    shift 2
    (cd "$folder" && ctest -V -j "$jobs" --timeout 300 "$@") >"$log/ctest.${prefix%/}" 2>&1
    awk -v prefix="$prefix" -v must_fail=base_fails -f tests/lines.awk "$log/ctest.${prefix%/}" | tee -a "$results"
}

# script NAME PREFIX COMMAND...: a program that prints result lines itself (PREFIX is put before their
# names), or only passes or fails. One that hangs is ended, with all that it started.
longest=900 # seconds; the slowest takes a third of it
script() {
    name=$1 prefix=$2 out=$log/$(echo "$1" | tr / .)
    shift 2
    timeout -k 10 $longest "$@" >"$out" 2>"$out.err"
    status=$?
    [ $status != 124 ] || echo "ended after $longest s; the last line: $(tail -1 "$out")" >>"$out.err"
    if grep -E '^(PASS|FAIL|SKIP) ' "$out" >"$out.lines"; then
        sed "s|^\(....\) |\1 $prefix|" "$out.lines" | tee -a "$results"
        [ $status = 0 ] || grep -q '^FAIL ' "$out" ||
            say "FAIL $name: exit $status; $(tail -1 "$out.err")"
    elif [ $status = 0 ]; then
        say "PASS $name"
    elif [ $status = 77 ]; then
        say "SKIP $name: $(tail -1 "$out.err")"
    else
        say "FAIL $name: exit $status; $(tail -1 "$out.err")"
    fi
}

# python_ready: sets python; false with its reason in $why
python_ready() {
    python=${PARE_PYTHON:-$PWD/build/venv/bin/python}
    why=
    if [ ! -x "$python" ]; then
        python3 -m venv build/venv >"$log/venv.log" 2>&1 || {
            why="no virtual environment: $(tail -1 "$log/venv.log")"
            return 1
        }
    fi
    "$python" -c 'import onnx, onnxruntime, numpy, h5py' 2>/dev/null ||
        "$python" -m pip install -q onnx==1.20.1 onnxruntime numpy h5py >"$log/pip.log" 2>&1 || {
        why="pip: $(grep -v '^$' "$log/pip.log" | tail -1 | cut -c1-200)"
        return 1
    }
    # tests of a package that is not there say so
    [ -n "${PARE_PYTHON:-}" ] || "$python" -c 'import tritonclient.http, tritonclient.grpc, PIL' 2>/dev/null ||
        "$python" -m pip install -q 'tritonclient[grpc,http]' prometheus_client pillow >>"$log/pip.log" 2>&1 || true
    [ -n "${PARE_PYTHON:-}" ] || "$python" -c 'import tensorboard' 2>/dev/null ||
        "$python" -m pip install -q tensorboard >>"$log/pip.log" 2>&1 || true
}

stage_release() {
    sh tests/simt/toolkit.sh build >"$log/toolkit" 2>&1 || say "SKIP toolkit: $(tail -1 "$log/toolkit")"
    build release build all -DCMAKE_BUILD_TYPE=Release -DPARE_WERROR=ON -DPARE_FUZZ=OFF || return
    unit "" build
}

# A sanitizer's build: names and lines are all that reports take of debug information, and LLVM's linker
# takes half of the time of GNU's
checked="-DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_FLAGS_RELWITHDEBINFO=-g1"
command -v ld.lld >/dev/null 2>&1 && checked="$checked -DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld"

stage_sanitize() {
    # shellcheck disable=SC2086 # a list of words
    build sanitize build/sanitize all $checked -DCMAKE_C_FLAGS=-O1 -DPARE_WERROR=ON \
        -DPARE_SANITIZE=ON || return
    OMP_NUM_THREADS=2 unit sanitize/ build/sanitize -LE slow
}

# The integer and exactness tests on narrower instruction sets than the machine's.
stage_isa() {
    for isa in AVX2 AVX512_CORE; do
        DNNL_MAX_CPU_ISA=$isa unit "$isa/" build -L isa
    done
}

# Runs that take about 20 s each: with one seed and no feedback from compared values (pointers are
# among them) libFuzzer makes the same inputs every time.
fuzz_runs() {
    case $1 in
    fuzz_checkpoint) echo 400000 ;;
    fuzz_chunks) echo 50000 ;;
    fuzz_grpc) echo 300000 ;;
    fuzz_http) echo 100000 ;;
    fuzz_onnx) echo 45000 ;;
    fuzz_picture) echo 40000 ;;
    fuzz_ranges) echo 600 ;;
    fuzz_serve) echo 300000 ;;
    fuzz_text) echo 7000 ;;
    fuzz_zoo) echo 100000 ;;
    *) echo 20000 ;;
    esac
}

# What a target said last before libFuzzer's report, and the input that did it.
fuzz_failure() {
    said=$(sed -n '/ERROR: \|runtime error: /q;p' "$log/$1.log" | grep -vE '^(#|INFO|==|$)' | tail -1)
    kind=$(grep -E 'ERROR: |runtime error: ' "$log/$1.log" | head -1 | sed 's|^==[0-9]*== *||' | cut -c1-200)
    input=$(sed -n 's/.*Test unit written to //p' "$log/$1.log" | tail -1)
    printf '%s; %s; input %s' "${said:-no message}" "${kind:-no report}" "${input:-was not written}"
    [ -f "$input" ] && [ "$(wc -c <"$input")" -lt 3072 ] && printf '; base64 %s' "$(base64 -w 0 "$input")"
}

# One target; all run at once, so that each has a core for most of its time.
fuzz() {
    name=$(basename "$1")
    seeds=tests/fuzz/corpus/${name#fuzz_}
    rm -rf "$log/$name" "$log/$name".*-* && mkdir -p "$log/$name"
    [ -d "$seeds" ] || seeds=
    if [ -n "${PARE_FUZZ_SECONDS:-}" ]; then
        how="-max_total_time=$PARE_FUZZ_SECONDS"
    else
        how="-seed=1 -runs=$(fuzz_runs "$name") -use_cmp=0 -reload=0"
    fi
    # shellcheck disable=SC2086 # lists of words; seeds may be empty
    if "$1" $how -rss_limit_mb=2048 -timeout=20 -artifact_prefix="$log/$name." "$log/$name" $seeds \
        >"$log/$name.log" 2>&1; then
        say "PASS fuzz/$name"
    else
        say "FAIL fuzz/$name: $(fuzz_failure "$name")"
    fi
}

stage_fuzz() {
    command -v clang >/dev/null 2>&1 || {
        say "SKIP fuzz: clang is not installed"
        return
    }
    # shellcheck disable=SC2086 # a list of words
    build fuzz build/fuzz fuzzers $checked -DCMAKE_C_FLAGS=-O2 -DCMAKE_C_COMPILER=clang -DPARE_FUZZ=ON \
        -DBUILD_TESTING=ON || return
    for target in build/fuzz/tests/fuzz_*; do
        [ -x "$target" ] && fuzz "$target" &
    done
    wait
}

stage_install() {
    [ -f tests/example/run.sh ] && script install/example install/ sh tests/example/run.sh
}

# claim FILE: true for the first that asks
claim() { mkdir "$log/claimed/$(basename "$1")" 2>/dev/null; }

# stage_cli FILE..., stage_python FILE...: each once, whoever comes first
stage_cli() {
    for file; do
        name=$(basename "$file" .sh)
        claim "$file" && script "cli/$name" cli/ sh "$file"
    done
}

stage_python() {
    for file; do
        stem=interop/$(basename "$file" .py)
        claim "$file" && script "$stem" "$stem/" "$python" "$file"
    done
}

for stage in release sanitize isa fuzz install; do
    wants $stage && stage_$stage
done
# Three lanes on two cores: most of these wait for timers, servers and jobs for a part of their time.
# Tests of several processes (ranks) run one after the other, in the first lane.
rm -rf "$log/claimed" && mkdir "$log/claimed"
ranks= others= pythons=
if wants cli; then
    ranks=$(grep -lE 'ranks_can|_parallel\.sh' tests/cli/[!_]*.sh)
    others=$(grep -LE 'ranks_can|_parallel\.sh' tests/cli/[!_]*.sh)
fi
if wants python; then
    if python_ready; then
        pythons=$(ls tests/interop/[!_]*.py)
    else
        say "SKIP interop: $why"
    fi
fi
# shellcheck disable=SC2046,SC2086 # lists of words
{
    { stage_cli $ranks $others; stage_python $pythons; } &
    { stage_python $pythons; stage_cli $(echo "$others" | sort -r); } &
    { stage_cli $(echo "$others" | sort -r); stage_python $(echo "$pythons" | sort -r); } &
    wait
}
for file in $ranks $others $pythons; do
    [ -d "$log/claimed/$(basename "$file")" ] || say "FAIL $file: was not run"
done

passed=$(grep -c '^PASS ' "$results")
failed=$(grep -c '^FAIL ' "$results")
skipped=$(grep -c '^SKIP ' "$results")
# once more, where the end of a long output is read first
[ "$failed" = 0 ] || { echo "Failed:" && grep '^FAIL ' "$results" | sed 's/^FAIL /  /'; }
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
