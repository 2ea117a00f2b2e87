#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ranks.sh SIZE PROGRAM...: a test program in so many processes of MPI on this machine; 77 where
# there is no MPI. Waiting ranks give their core away: there are more of them than cores.
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
exec mpirun -q -n "$size" "$@"
