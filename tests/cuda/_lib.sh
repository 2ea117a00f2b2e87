# SPDX-License-Identifier: Apache-2.0
# What the tests of commands on the emulated GPU share; a test sources this file. It works in a folder of
# its own, where `out` has what the command last checked said.
zoo=$(cd "$(dirname "$0")/../../datasets/zoo" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
status=0

check() { # NAME COMMAND...: passes where the command does
    name=$1
    shift
    if "$@" >out 2>&1; then echo "PASS $name ${VERBOSE:+$(tail -1 out)}"; else
        echo "FAIL $name: $(tail -1 out)"
        status=1
    fi
}

# data_sets NAME: train.h5 and test.h5, or the test NAME is skipped
data_sets() {
    "$pare" data fashion-mnist -o . --quiet >out 2>&1 || { echo "SKIP $1: $(tail -1 out)"; exit 77; }
}
