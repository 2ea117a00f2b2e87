# SPDX-License-Identifier: Apache-2.0
# What the command-line tests share. A test sources this file with its name in $name; it works in a
# folder of its own, $work, and prints PASS|FAIL|SKIP lines.
set -u
LC_ALL=C
export LC_ALL
top=$(cd "$(dirname "$0")/../.." && pwd -P)
pare=${PARE:-$top/build/pare}
zoo=$top/datasets/zoo
work=$top/build/tests/cli/$name
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1
good=0
bad=0
pass() { echo "PASS $name/$1"; good=$((good + 1)); }
fail() { echo "FAIL $name/$1: $2"; bad=$((bad + 1)); }
skip() { echo "SKIP $name/$1: $2"; }
finish() { [ $bad = 0 ] && [ $good -gt 0 ]; }

# Every file here with its content, but for what the tests write themselves.
listing() { find . -type f ! -name '.test.*' -exec cksum {} + 2>/dev/null | sort; }

# has TEXT FILE: the text is in the file
has() { grep -qF -e "$1" "$2"; }

# refuses NAME EXIT WORDS COMMAND...: ends with this exit status, one line on standard error that begins
# with "pare: " and holds each of the WORDS (separated by '|'), and changes no file.
refuses() {
    case_=$1 status_=$2 words_=$3
    shift 3
    before_=$(listing)
    "$@" >.test.out 2>.test.err
    got_=$?
    lines_=$(grep -vc '^warning: ' .test.err)
    if [ $got_ != "$status_" ]; then
        fail "$case_" "exit $got_, expected $status_: $(head -2 .test.err | tr '\n' ' ')"
        return
    fi
    if [ "$lines_" != 1 ] || ! grep -q '^pare: ' .test.err; then
        fail "$case_" "$lines_ lines on standard error: $(head -3 .test.err | tr '\n' ' ')"
        return
    fi
    old_ifs=$IFS
    IFS='|'
    for word in $words_; do
        if ! has "$word" .test.err; then
            IFS=$old_ifs
            fail "$case_" "'$word' is missing in: $(cat .test.err)"
            return
        fi
    done
    IFS=$old_ifs
    if [ "$before_" = "$(listing)" ]; then
        pass "$case_"
    else
        fail "$case_" "files changed: $(find . -newer .test.out -type f ! -name '.test.*' | tr '\n' ' ')"
    fi
}

# works NAME COMMAND...: exit status 0; standard output stays in .test.out
works() {
    case_=$1
    shift
    if "$@" >.test.out 2>.test.err; then pass "$case_"; else fail "$case_" "exit $?: $(head -3 .test.err | tr '\n' ' ')"; fi
}

# says NAME TEXT: the last command's standard output holds the text
says() { if has "$2" .test.out; then pass "$1"; else fail "$1" "'$2' is missing in: $(head -5 .test.out | tr '\n' ' ')"; fi; }

# onnx_of NAME < text: NAME.onnx from protobuf's text form. The reader's .proto keeps values as bytes;
# here they are written out.
onnx_of() {
    [ -f .test.proto ] ||
        sed -e 's/repeated bytes \([a-z_]* = 1[123];\)/repeated ValueInfo \1/' \
            -e 's/repeated bytes float_data = 4/repeated float float_data = 4/' \
            -e 's/repeated bytes int64_data = 7/repeated int64 int64_data = 7/' \
            "$top/formats/onnx.proto" >.test.proto
    protoc --proto_path=. --encode=onnx.Model .test.proto >"$1.onnx" 2>.test.protoc ||
        fail "$1" "protoc: $(head -1 .test.protoc)"
}

# npy_of FILE TYPE SHAPE < bytes: an NPY 1.0 file, "npy_of x.npy '<f4' '(2, 3)'"
npy_of() {
    head_="{'descr': '$2', 'fortran_order': False, 'shape': $3, }"
    pad_=$((117 - ${#head_}))
    printf '\223NUMPY\001\000\166\000%s%*s\n' "$head_" "$pad_" '' >"$1"
    cat >>"$1"
}

# steps_of PID: waits until the training of this process, whose words go to .test.err, tells of steps
steps_of() {
    for i_ in $(seq 1 1200); do
        grep -aq '[0-9] steps' .test.err && return
        kill -0 "$1" 2>/dev/null || return
        sleep 0.1
    done
}

# data_sets: sets data to the folder with Fashion-MNIST's train.h5 and test.h5, made once for all tests
data_sets() {
    data=$top/data
    [ -f "$data/test.h5" ] && [ -f "$data/train.h5" ] && return 0
    "$pare" data fashion-mnist -q -o "$data" >.test.out 2>.test.err && return 0
    skip data "Fashion-MNIST is not there: $(head -1 .test.err)"
    return 1
}

# ranks_can: can this build and this machine start several processes? Says why not, as a SKIP
ranks_can() {
    if ! sh -c 'command -v mpirun' >/dev/null 2>&1; then # not a function of the test's
        skip all "no mpirun (openmpi-bin)"
        return 1
    fi
    OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "$pare" version >.test.out 2>.test.err
    has 'this build has no MPI' .test.err || return 0
    skip all "this build has no MPI (libopenmpi-dev)"
    return 1
}

# process_of RANK: sets process to that of this test's job that begins
process_of() {
    process=
    for i_ in $(seq 1 1000); do
        for file_ in $(grep -alz "^OMPI_COMM_WORLD_RANK=$1\$" /proc/[0-9]*/environ 2>/dev/null); do
            [ "$(readlink "${file_%environ}exe")" = "$(readlink -f "$pare")" ] || continue
            case $(readlink "${file_%environ}cwd")/ in "$work"/*) ;; *) continue ;; esac
            process=${file_#/proc/}
            process=${process%/environ}
            return
        done
        sleep 0.01
    done
}

# ranks_of SIZE: waits until the job that begins works, which .test.err says; sets ranks to its processes, one a line
# (mpirun itself may hang when one dies before)
ranks_of() {
    for i_ in $(seq 1 400); do
        has 'needs about' .test.err && break
        sleep 0.05
    done
    ranks=
    for rank_ in $(seq 0 $(($1 - 1))); do
        process_of "$rank_"
        ranks="$ranks$process
"
    done
}

# zoo_of FILE LINE...: a zoo file over a few samples, with these lines after what all have
zoo_of() {
    file_=$1
    shift
    {
        printf 'name: demo\ndata: %s/train.h5\ntest: %s/test.h5\nsamples: 64\nlatency: false\n' "$data" "$data"
        printf '%s\n' "$@"
    } >"$file_"
}
# a file of facts without the options that the command was given
facts_of() { sed '/^  "run": {/,/^  }/d' "$1"; }
