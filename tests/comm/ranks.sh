#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ranks.sh SIZE PROGRAM...: a test program in so many processes of MPI on this machine; 77 where
# there is no MPI. Waiting ranks give their core away: there are more of them than cores.
# Open MPI 4's mpirun may wait for ever while it ends (in PMIx_server_finalize: its issue 7790). Once
# all ranks are gone it has 20 s; then its exit status is that of the first rank that failed.
set -u
size=$1
shift
if ! command -v mpirun >/dev/null 2>&1; then
    echo "no mpirun (openmpi-bin)" >&2
    exit 77
fi
[ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export HWLOC_HIDE_ERRORS=2 # its words about a machine without /sys are not ours
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
export ASAN_OPTIONS=detect_leaks=0 # Open MPI unloads plugins whose memory it keeps; leaks of ours show in one process
RANKS=$(mktemp -d) || exit 1
trap 'rm -rf "$RANKS"' EXIT
export RANKS OMPI_MCA_orte_fork_agent="$(cd "$(dirname "$0")" && pwd)/rank.sh"

# gone: ranks were there, and none runs
gone() {
    [ -n "$(ls "$RANKS")" ] || return 1
    for rank in "$RANKS"/*.pid; do ! kill -0 "$(cat "$rank")" 2>/dev/null || return 1; done
}
watch() {
    late=0
    while [ $late -lt 20 ]; do
        sleep 1
        if gone; then late=$((late + 1)); else late=0; fi
    done
    touch "$RANKS/late" && kill -KILL "$1"
}

mpirun -q -n "$size" "$@" <&0 &
job=$!
trap 'kill -TERM $job' TERM
trap 'kill -INT $job' INT
watch $job </dev/null >/dev/null 2>&1 &
watcher=$!
wait $job 2>/dev/null
status=$?
while kill -0 $job 2>/dev/null; do # a signal ended the wait
    wait $job 2>/dev/null
    status=$?
done
if [ -e "$RANKS/late" ]; then
    status=0 # one that was killed with its shell left none
    for rank in "$RANKS"/*.pid; do
        [ "$status" != 0 ] || status=$(cat "${rank%.pid}.status" 2>/dev/null || echo 137)
    done
else
    kill $watcher 2>/dev/null
fi
exit "$status"
