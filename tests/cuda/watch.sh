#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the program says about a GPU, and what tools see of it. usage: watch.sh PARE NVML-FOLDER DCGM-FOLDER [NVTX-TOOL]
pare=${1:?PARE}
nvml=${2:?NVML-FOLDER}
dcgm=${3:?DCGM-FOLDER}
nvtx=$4
command -v python3 >/dev/null || { echo "SKIP watch: python3 was not found"; exit 77; }
. "$(dirname "$0")/_lib.sh"
mlp=$zoo/mlp.onnx

bench() {
    "$pare" bench "$mlp" --iterations 2 --duration 0 --warmup 0 --device cuda "$@"
}
judge() { # a python expression over the JSON file j
    python3 -c "import json,sys
j=json.load(open(sys.argv[1]))
sys.exit(0 if ($2) else 'not so: '+sys.argv[2]+str(j)[:300])" "$1" "$2"
}
watched() { LD_LIBRARY_PATH=$nvml bench "$@"; }
lines() { [ "$(grep -c "$1" "$2")" = "$3" ] || { cat "$2" && false; }; }

check without_nvml bench --json none.json
check without_nvml_null judge none.json "j['device'] == {'name': 'emulated device (sm_90)', 'cuda': '13.0', 'driver': None, 'vitals': None}"
check with_nvml watched --json some.json
cp out text
check driver judge some.json "j['device']['driver'] == '580.95.05'"
check vitals judge some.json "(lambda v: v['readings'] > 0 and v['power_w'] == dict(min=312.5, mean=312.5, max=312.5) and v['power_limit_w'] == 700 and v['sm_mhz']['mean'] == 1980 and v['memory_mhz']['max'] == 3201 and v['temperature_c']['max'] == 51 and v['memory_used_bytes']['max'] == 53687091200 and v['memory_total_bytes'] == 161061273600 and v['slowed'] == ['power limit', 'temperature, by software'])(j['device']['vitals'])"
check without_dcgm judge some.json "all(j['device']['vitals'][k] is None for k in ('sm_active', 'tensor_active', 'dram_active', 'pcie_tx_bytes_per_s', 'nvlink_rx_bytes_per_s'))"
check vitals_text lines "limit 700 W, SM 1980 MHz, memory 3201 MHz, 51 C, 53.7 GB used; slowed by: power limit" text 1

# a second, for activities are known from the third reading on
activities() { LD_LIBRARY_PATH=$nvml:$dcgm "$pare" bench "$mlp" --duration 1 --warmup 0 --device cuda "$@"; }
check with_dcgm activities --json dcgm.json
cp out text
check activity judge dcgm.json "(lambda v: v['power_w']['mean'] == 312.5 and v['sm_active'] == dict(min=0.75, mean=0.75, max=0.75) and v['tensor_active']['mean'] == 0.5 and v['pcie_tx_bytes_per_s']['max'] == 12.5e9 and v['pcie_rx_bytes_per_s']['max'] == 0 and v['dram_active'] is v['nvlink_tx_bytes_per_s'] is v['nvlink_rx_bytes_per_s'] is None)(j['device']['vitals'])"
check activity_text lines "53.7 GB used, SM active 75 %, tensor cores 50 %; slowed by: power limit" text 1

check streams bench --streams 3 --json s.json --trace t.json --profile p.json
check streams_each judge s.json "len(j['streams']) == 3 and all(s['runs'] >= 2 and s['latency_ms']['median'] > 0 for s in j['streams']) and j['runs'] == sum(s['runs'] for s in j['streams'])"
check profile judge p.json "j['device'] == 'emulated device (sm_90)' and len(j['steps']) == 3 and all(s['time_ms'] > 0 and s['bytes_in'] > 0 and s['precision'] == 'f32' for s in j['steps'])"
lanes="{e['tid']: e['args']['name'] for e in j['traceEvents'] if e['name'] == 'thread_name'}"
check trace_lanes judge t.json "sorted($lanes.values()) == sorted('stream %d: %s' % (s, k) for s in range(3) for k in ('copy in', 'compute', 'copy out'))"
check trace_steps judge t.json "all(sum(e['ph'] == 'X' and e['tid'] == t for e in j['traceEvents']) == (3 if 'compute' in n else 1) for t, n in $lanes.items())"
check trace_order judge t.json "all(a['ts'] + a['dur'] <= b['ts'] + 1e-3 for a, b in (lambda l: zip(l, l[1:]))(sorted((e for e in j['traceEvents'] if e['ph'] == 'X'), key=lambda e: (e['tid'], e['ts']))) if a['tid'] == b['tid'])"

check tf32 bench --tf32 --json tf32.json
check tf32_said judge tf32.json "j['tf32'] is True"
check tf32_off judge none.json "'tf32' not in j"
check tf32_on_the_cpu "$pare" bench "$mlp" --iterations 2 --duration 0 --warmup 0 --device cpu --tf32 --json cpu.json
cp out text
check tf32_on_the_cpu_said lines "warning: --tf32 changes nothing on the CPU" text 1
check tf32_on_the_cpu_off judge cpu.json "'tf32' not in j"

# a timing cache that is no use is said once and made again, or left alone
for fault in '{"pare_timing": 1, "mach' '{"pare_timing": 0}' '{"pare_timing": 1, "machines": {"x": {}}}'; do
    mkdir -p cache
    printf '%s' "$fault" >cache/timing.json
    check cache bench --cache cache
    cp out text
    check cache_said_once lines "warning: cache/timing.json" text 1
done

# wherever a call fails, one message that says which, and nothing kept (of cuBLAS, pare's own kernels
# take the place)
failing() { # N
    SIMT_BLAS=absent SIMT_FAIL=$1:719 SIMT_LEAKS=1 bench --no-tune --streams 2 --profile f.json --trace g.json
    [ $? = 1 ] && grep -q '^pare: .*cudaErrorLaunchFailure' out
}
for n in 20 40 80 120 150 200; do check "failing_$n" failing $n; done

# and while kernels are timed, where a capture that fails is done without
said_or_survived() { # N
    SIMT_BLAS=absent SIMT_FAIL=$1:719 SIMT_LEAKS=1 bench
    case $? in
    0) true ;;
    1) grep -q '^pare: .*cudaErrorLaunchFailure' out ;;
    *) false ;;
    esac
}
for n in 17 20 23 60 72 75 110 150; do check "tuning_fails_$n" said_or_survived $n; done

if [ -n "$nvtx" ]; then
    export NVTX_LOG="$folder/ranges" NVTX_INJECTION64_PATH="$nvtx"
    check nvtx bench
    check nvtx_phases lines '^copy in$' ranges 6 # two runs that are not counted, two that are, two for phases
    check nvtx_nodes lines '^  /2/Relu$' ranges 2 # run step by step, then recorded
    check nvtx_balanced lines unbalanced ranges 0
else
    echo "SKIP nvtx: the toolkit has no nvtx3/nvToolsExt.h"
fi
exit $status
