#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Line coverage of every kernel file by the runs of its emulated tests: at least 98 %.
#
#   sh tests/cuda/coverage.sh FOLDER      the folder that holds the tests' objects
set -u
folder=$(cd "${1:?folder}" && pwd) || exit 1
cd "$(dirname "$0")/../.." || exit 1
command -v gcov >/dev/null || { echo "SKIP coverage: gcov is not installed" && exit 77; }
failed=0
for source in $(find runtime/cuda -name '*.cu' | LC_ALL=C sort); do
    stem=$(basename "$source")
    lines=$(find "$folder" -name "$stem.gcda" | while read -r data; do
        (cd "$folder" && gcov -n "$data" 2>/dev/null) |
            awk -v file="/$source'" 'index($0, file) { getline; print; exit }'
    done | sort -t: -k2 -n | tail -1) # of the programs that run it, the one that runs most
    [ -n "$lines" ] || { echo "FAIL $stem: no test of it has run" && failed=1 && continue; }
    percent=$(printf '%s' "$lines" | sed 's/.*executed:\([0-9.]*\)%.*/\1/')
    word=PASS
    awk -v p="$percent" 'BEGIN { exit !(p >= 98) }' || word=FAIL failed=1
    echo "$word $stem: $lines"
done
exit $failed
