#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The documents are true: README.md's commands run, its C code compiles, links lead somewhere, and
# tools/COMMANDS.md is what the option tables print.
#
# PARE_README_SAMPLES=N  samples of each data set that a command reads (256): `--samples N` is added to
#                        every command that has this option; 0 adds nothing
# README=FILE            another file in place of README.md
#
# The files that README.md names are made here: net.onnx is the sample net cnn, train.h5 and test.h5 are
# Fashion-MNIST, photos/ are two folders with a picture each, zoo.yaml is that of tools/README.md.
name=readme
. "$(dirname "$0")/_lib.sh"
readme=${README:-$top/README.md}
samples=${PARE_README_SAMPLES:-256}
rooms="formats runtime runtime/comm runtime/cuda calib quant prune distill tools tools/serve tools/serve/http tools/serve/traffic tools/serve/gpu tools/serve/grpc tools/serve/ensemble tools/serve/pictures tools/load tests datasets"

# --- the documents alone ---

lines=$(wc -l <"$readme")
[ "$lines" -le 150 ] && pass length || fail length "README.md has $lines lines, at most 150 are allowed"

"$pare" help --markdown >.test.commands.md
if cmp -s .test.commands.md "$top/tools/COMMANDS.md"; then
    pass commands_md
else
    fail commands_md "tools/COMMANDS.md is old; this makes it: build/pare help --markdown >tools/COMMANDS.md"
fi

# anchors FILE: the anchor of each heading, as GitHub makes it
anchors() {
    awk '/^```/ { code = !code } !code && /^#+ / { sub(/^#+ /, ""); print }' "$1" |
        tr '[:upper:]' '[:lower:]' | sed -e 's/[^a-z0-9 _-]//g' -e 's/ /-/g'
}

# links FILE FOLDER: each relative link of the file exists, with its anchor
links() {
    missing=
    awk '/^```/ { code = !code } !code' "$1" | grep -oE '\]\([^)]+\)' | sed 's/^](//; s/)$//' |
        grep -v '^https\?:' >.test.links
    while read -r link; do
        file=${link%%#*}
        [ -z "$file" ] && file=$1 || file=$2/$file
        if [ ! -e "$file" ]; then
            missing="$missing $link"
        elif [ "$link" != "${link#*#}" ]; then
            anchors "$file" | grep -qxF -e "${link#*#}" || missing="$missing $link"
        fi
    done <.test.links
    [ -z "$missing" ] && [ -s .test.links ] && pass "links_$3" || fail "links_$3" "lead nowhere:$missing"
}
links "$readme" "$top" readme
links "$top/tools/COMMANDS.md" "$top/tools" commands
for room in $rooms; do
    [ -f "$top/$room/README.md" ] && links "$top/$room/README.md" "$top/$room" "$room" ||
        fail "links_$room" "no $room/README.md"
done

# A room's commands name options that exist.
for room in $rooms; do
    grep -hE '^build/pare ' "$top/$room/README.md" >.test.commands
    unknown=
    while read -r program command rest; do
        [ "$command" = data ] && command="data ${rest%% *}"
        # shellcheck disable=SC2086 # two words
        "$pare" $command --help >.test.help 2>&1 || unknown="$unknown $command"
        for option in $(printf '%s' "$rest" | sed 's/ # .*//' | grep -oE '(^| )--[A-Za-z0-9-]+'); do
            grep -qE -e "$option( |\$)" .test.help || unknown="$unknown $command:$option"
        done
    done <.test.commands
    [ -z "$unknown" ] && pass "options_$room" || fail "options_$room" "unknown:$unknown"
done

# --- README.md's C code ---

header=$(find "$top" -maxdepth 2 -name pare.h | head -1)
awk '/^```c$/ { code = 1; next } /^```/ { code = 0 } code' "$readme" >.test.lines
{
    grep '^#' .test.lines
    echo 'void readme(void)'
    echo '{'
    grep -v '^#' .test.lines
    echo '}'
} >.test.c
[ -s .test.lines ] && "${CC:-cc}" -std=c11 -fsyntax-only -I"$top" -I"$(dirname "$header")" .test.c 2>.test.err &&
    pass library || fail library "$(head -3 .test.err | tr '\n' ' ')"

# --- README.md's commands ---

data_sets || exit 0
ln -s "$top/datasets" datasets
mkdir build && ln -s "$pare" build/pare && ln -s "$data" data
ln -s "$zoo/cnn.onnx" net.onnx && cp "$data/train.h5" "$data/test.h5" . # a command of README writes train.h5
picture=$(find "$top/tests/bench/results" -name '*.png' | head -1)
for class in bag boot; do mkdir -p photos/$class && cp "$picture" photos/$class/1.png; done
awk '/^```yaml$/ { code = 1; next } /^```/ { code = 0 } code' "$top/tools/README.md" |
    sed "s/^# samples: .*/samples: 64/" >zoo.yaml
PATH=$work/build:$PATH
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PATH OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe

# serves COMMAND: a server prints its address and ends when it is told to
serves() {
    : >.test.out
    sh -c "exec $1 --port 0" >.test.out 2>.test.err </dev/null &
    for i_ in $(seq 1 100); do
        grep -q '^http://' .test.out && break
        sleep 0.1
    done
    kill -TERM $!
    wait $! && grep -q '^http://' .test.out
}

# In a block of commands (```sh) every line is one; in another, each line that begins like one. In the
# table each span of code in the second column is one.
{
    awk '/^```c$/ { other = 1 } /^```sh$/ { all = 1; next } /^```/ { if (all) { all = 0; next }
             code = !code; if (!code) other = 0; next }
         all || (code && !other && /^(build\/)?pare |^(git|sh|cmake|cc) /)' "$readme"
    sed -n '/^## Your task/,/^## The/p' "$readme" | awk -F'|' 'NF > 3 { print $3 }' |
        grep -oE '`[^`]+`' | tr -d '`'
} | sed 's/  *# .*//' >.test.commands
number=0
ran=0
while read -r line; do
    number=$((number + 1))
    case $line in
    'git clone '*) skip "command_$number" "$line: this is the clone"; continue ;;
    'sh tools/demo.sh') skip "command_$number" "$line: it installs packages and builds"; continue ;;
    'sh tests/run.sh') skip "command_$number" "$line: it runs this test"; continue ;;
    mpirun*)
        command -v mpirun >/dev/null 2>&1 || {
            skip "command_$number" "$line: no mpirun (openmpi-bin)"
            continue
        }
        ;;
    cmake*) skip "command_$number" "$line: tests/run.sh's stage install builds and installs"; continue ;;
    esac
    set -f
    # shellcheck disable=SC2086 # words
    set -- $line
    set +f
    [ "$1" != mpirun ] || shift 3 # mpirun -n 4
    more=
    # shellcheck disable=SC2015 # both end the same
    [ "$samples" != 0 ] && "$pare" "$2" --help 2>/dev/null | grep -q -e ' --samples N' && more=" --samples $samples"
    ran=$((ran + 1))
    if [ "$2" = serve ]; then
        if serves "$line"; then
            pass "command_$number"
        elif has 'no HTTP library' .test.err; then
            skip "command_$number" "$line: $(tail -1 .test.err)"
        else
            fail "command_$number" "$line: $(tail -1 .test.err)"
        fi
    elif sh -c "$line$more" >.test.out 2>.test.err </dev/null; then
        pass "command_$number"
    else
        fail "command_$number" "$line$more: $(grep -v '^warning' .test.err | tail -1)"
    fi
done <.test.commands
[ $ran -ge 12 ] && pass commands_found || fail commands_found "$ran in README.md"
finish
