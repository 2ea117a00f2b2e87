#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A Slurm of this machine alone, whose daemons run from a folder, for tests and benchmarks. All but
# "lacks" and "make" are about the one that $SLURM_CONF, a path that "make" printed, belongs to.
#
#   sh tests/cli/_slurm.sh lacks           prints why there can be none; status 1 where there can
#   sh tests/cli/_slurm.sh make SIZE       makes the folder, for arrays of at most SIZE tasks
#   sh tests/cli/_slurm.sh start DAEMON    of munged, slurmctld, slurmd
#   sh tests/cli/_slurm.sh ready           waits until its node is idle
#   sh tests/cli/_slurm.sh ended SECONDS   waits until no job is left; looks once where there is no time
#   sh tests/cli/_slurm.sh kill            ends its controller with -9
#   sh tests/cli/_slurm.sh back            what an administrator does after that
#   sh tests/cli/_slurm.sh down            ends its daemons and their jobs, and removes the folder
set -u
PATH=$PATH:/usr/sbin:/sbin
there=$(dirname "${SLURM_CONF:-/none/none}")

# try TIMES PAUSE COMMAND...: until it ends with 0
try() {
    times=$1 pause=$2
    shift 2
    until "$@"; do
        times=$((times - 1))
        [ $times -gt 0 ] || return 1
        sleep "$pause"
    done
}

lacks() {
    [ "$(id -u)" = 0 ] || { echo "munged, slurmctld and slurmd want root"; return 0; }
    for program in munged slurmctld slurmd sbatch squeue; do
        command -v $program >/dev/null 2>&1 || { echo "$program is not installed"; return 0; }
    done
    return 1
}

# The scheduler looks each second, and at what has just come; FirstJobId is what "back" raises.
conf() { # FOLDER SIZE
    host=$(hostname -s)
    port=$((20000 + $$ % 20000))
    cat <<END
ClusterName=pare
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$1/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$1/state
SlurmdSpoolDir=$1/spool
SlurmctldPidFile=$1/slurmctld.pid
SlurmdPidFile=$1/slurmd.pid
SlurmctldLogFile=$1/slurmctld.log
SlurmdLogFile=$1/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
MaxArraySize=$2
FirstJobId=1
GresTypes=gpu
SchedulerParameters=sched_interval=1,sched_min_interval=100000,batch_sched_delay=0,bf_interval=1
KillWait=2
BatchStartTimeout=1
MessageTimeout=5
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) Gres=gpu:1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
END
}

# A GPU that is one by name only is in gres.conf. A socket's path must be short: the folder is
# in /tmp.
make() {
    there=$(mktemp -d /tmp/pare-slurm.XXXXXX) || return
    chmod 755 "$there"
    mkdir "$there/state" "$there/spool"
    head -c 1024 /dev/urandom >"$there/munge.key"
    chmod 600 "$there/munge.key"
    conf "$there" "$1" >"$there/slurm.conf"
    echo "Name=gpu File=/dev/null" >"$there/gres.conf"
    echo "$there/slurm.conf"
}

start() {
    case $1 in
    munged) set -- munged --foreground --force --key-file="$there/munge.key" \
        --socket="$there/munge.socket" --pid-file="$there/munged.pid" \
        --log-file="$there/munged.log" --seed-file="$there/munged.seed" ;;
    *) set -- "$1" -D ;;
    esac
    setsid "$@" >>"$there/out" 2>&1 </dev/null &
    [ "$1" != munged ] || try 50 0.1 [ -S "$there/munge.socket" ]
}

# A job that is started although it ran already, which had been forgotten, is held, or put off for two
# minutes, and takes its node out of service. What still runs by what a controller that is back remembers has ended where the
# node does not know it; Slurm believes that so long after the start as both timeouts take.
tend() {
    if [ -f "$there/back" ] && [ $(($(date +%s) - $(cat "$there/back"))) -gt 7 ]; then
        rm "$there/back"
        scontrol reconfigure 2>/dev/null
    fi
    case $(sinfo -h -o %T 2>/dev/null) in
    *drain* | *down*) scontrol update nodename="$(hostname -s)" state=resume 2>/dev/null ;;
    esac
    squeue -h -t PD -o '%i %r' 2>/dev/null | while read -r job why; do
        case $why in
        *'requeued held'*) scontrol release "$job" ;;
        BeginTime) scontrol update "jobid=$job" starttime=now ;;
        esac 2>/dev/null
    done
}

is_idle() { sinfo -h -o %T 2>/dev/null | grep -q '^idle$' || { tend && false; }; }
ready() {
    try 100 0.2 is_idle && return
    tail -qn 2 "$there/slurmctld.log" "$there/slurmd.log" 2>/dev/null | tr '\n' ' '
    return 1
}

is_empty() {
    if queue=$(squeue -h 2>/dev/null) && [ -z "$queue" ]; then return; fi
    tend
    return 1
}
ended() {
    try $((5 * $1)) 0.2 is_empty && return
    squeue -h 2>&1 | head -3 | tr '\n' ' '
    return 1
}

is_gone() { ! grep -q slurmctld "/proc/$1/cmdline" 2>/dev/null; }
end_controller() {
    pid=$(cat "$there/slurmctld.pid") && kill -9 "$pid" && try 100 0.02 is_gone "$pid"
}

# What it had not saved yet is forgotten, numbers of jobs, too: jobs that run on must not meet others
# of their number.
answers() { scontrol ping 2>/dev/null | grep -q 'is UP'; }
back() {
    first=$(sed -n 's/^FirstJobId=//p' "$SLURM_CONF")
    sed -i "s/^FirstJobId=.*/FirstJobId=$((first + 1000))/" "$SLURM_CONF"
    start slurmctld
    try 100 0.1 answers
    date +%s >"$there/back"
    tend
}

# All whose environment names this Slurm, but for those that ask for its end.
end_all() {
    found=1
    for folder in /proc/[0-9]*; do
        grep -qzxF "SLURM_CONF=$SLURM_CONF" "$folder/environ" 2>/dev/null || continue
        case $(tr '\0' ' ' <"$folder/cmdline" 2>/dev/null) in
        munged* | slurm* | *" zoo "*" --task "* | *" zoo "*" --merge "*)
            kill -9 "${folder#/proc/}" 2>/dev/null && found=0 ;;
        esac
    done
    return $found
}
down() {
    case $there in /tmp/pare-slurm.*) ;; *) return 1 ;; esac
    scancel --user=root >/dev/null 2>&1
    while end_all; do sleep 0.1; done
    rm -rf "$there"
}

case ${1:-} in
lacks | make | start | ready | ended | back | down) "$@" ;;
kill) end_controller ;;
*) sed -n 's/^#   //p' "$0"; exit 2 ;;
esac
