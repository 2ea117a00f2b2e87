#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Faults of the GPU: quantize (with calibration) and run of a small MLP over 4 samples on the emulated
# device, again and again, and each time another CUDA call fails: every call of run once with a failed
# launch, every second one of quantize, every call that asks for memory or makes something once out of
# memory, every fourth one and all that follow with a lost device. A command must then end with exit
# status 1, one message and no file, or
# have worked around it (a smaller batch, another kernel) and write what it writes without the fault; a
# third of the faults at least cannot be worked around. Nothing may leak.
#
#   sh tests/cuda/faults.sh PARE NET_TOOL     pare_emulated_asan
set -u
pare=${1:?PARE} net_tool=${2:?NET_TOOL}
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
"$net_tool" mlp "$top/mlp.onnx" 32 48 40 10 && "$net_tool" input 1 "$top/x.npy" 8 32 &&
    "$pare" data import -o "$top/x.h5" --npy "$top/x.npy" --quiet >"$top/log" ||
    { echo "FAIL faults: no model or data"; exit 1; }
export ASAN_OPTIONS=exitcode=99:detect_leaks=1 SIMT_LEAKS=1

command_of() { # NAME OUTPUT
    case $1 in
    run) set -- run "$top/mlp.onnx" --data "$top/x.h5" --samples 4 --batch 1 -o "$2" ;;
    run_batch) set -- run "$top/mlp.onnx" --data "$top/x.h5" --samples 4 --batch 4 -o "$2" ;;
    quantize) set -- quantize "$top/mlp.onnx" --data "$top/x.h5" --samples 4 --mixed-precision 20 \
        --bias-correction fast -o "$2" ;;
    esac
    "$pare" "$@" --device cuda --quiet
}

# one NAME FAULT: what is wrong with the command under this fault, or nothing; counts
one() {
    SIMT_FAIL=$2 command_of "$1" output >out 2>err
    got=$?
    case $got in
    0)
        cmp -s output right || cmp -s output own || echo "$2: exit 0 with another output"
        served=$((served + 1))
        ;;
    1)
        [ "$(wc -l <err)" = 1 ] && grep -q '^pare: .' err ||
            echo "$2: expected one line that begins with pare: $(head -3 err | tr '\n' ' ')"
        [ ! -e output ] || echo "$2: exit 1 and an output"
        failed=$((failed + 1))
        ;;
    *) echo "$2: exit $got: $(grep -m3 -E 'simt|ERROR|SUMMARY|pare:' err | tr '\n' ' ')" ;;
    esac
    rm -f output
    [ "$(ls)" = "$here" ] || echo "$2: left $(ls | tr '\n' ' ')"
}

# prepare NAME: in a folder of its own what the command writes, the calls it makes, the faults to try
prepare() {
    mkdir "$top/$1" && cd "$top/$1" || return
    SIMT_CALLS=calls command_of "$1" right >out 2>err ||
        { echo "FAIL $1: without a fault: exit $?: $(tail -1 err)"; return; }
    # where cuBLAS cannot be had, pare's own kernels serve: right, but not bit for bit the same
    SIMT_FAIL=$(awk '$2 == "cublasLtCreate" { print $1; exit } END { print 0 }' calls | head -1):1 \
        command_of "$1" own >out 2>err || echo "FAIL $1: without cuBLAS: exit $?: $(tail -1 err)"
    awk -v apart="$([ "$1" = quantize ] && echo 2 || echo 1)" '
         $1 % apart == 0 { print $1 ":719" }
         $2 ~ /Alloc|Malloc|Create|Instantiate/ { print $1 ":2" }
         $1 % 4 == 1 { print $1 ":700:sticky" }' calls >faults
}

# campaign NAME PART: every second fault; what went wrong and how many were what
campaign() {
    mkdir "$top/$1/$2" && cd "$top/$1/$2" || return
    cp ../right ../own .
    : >out && : >err && here=$(ls)
    failed=0 served=0
    while read -r fault; do one "$1" "$fault"; done <<EOF >../wrong.$2
$(awk -v part="$2" 'NR % 2 == part' ../faults)
EOF
    echo "$failed $served" >../counts.$2
}

# judge NAME: its line, and those of what went wrong
judge() {
    cd "$top/$1" || return
    set -- "$1" $(awk '{ f += $1; s += $2 } END { print f, s }' counts.0 counts.1) \
        "$(wc -l <calls)" "$(wc -l <faults)"
    if [ -s wrong.0 ] || [ -s wrong.1 ] || [ $(($2 + $3)) != "$5" ] || [ "$2" -lt $(($5 / 3)) ]; then
        sed "s/^/FAIL $1: /" wrong.0 wrong.1
        echo "FAIL $1: $4 calls, $5 faults; $2 were messages, $3 did no harm"
    else
        echo "PASS $1: $4 calls, $5 faults; $2 were messages, $3 did no harm"
    fi
}

campaigns="quantize run run_batch"
part() { for name in $campaigns; do (campaign "$name" "$1"); done; }
for name in $campaigns; do (prepare "$name"); done >"$top/log"
part 0 &
part 1
wait $!
for name in $campaigns; do (judge "$name"); done >>"$top/log"
cat "$top/log"
! grep -q '^FAIL' "$top/log" && [ "$(grep -c '^PASS' "$top/log")" = 3 ]
