#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Processes that reach each other through a link that is slow and loses packets write the bytes of one process.
name=slow_network
. "$(dirname "$0")/_lib.sh"
cnn=$zoo/cnn.onnx
ranks_can || exit 0
data_sets || exit 0

# slowly SIZE COMMAND...: so many processes; packets are 2 ms late, and 2 of 100 are lost
slowly() {
    OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=slow0 unshare -rn \
        python3 "$top/tests/comm/slow_link.py" 2 2 sh "$top/tests/comm/ranks.sh" "$@"
}
if ! unshare -rn python3 "$top/tests/comm/slow_link.py" 0 0 true 2>.test.err; then
    skip all "no namespace with a slow link: $(tail -1 .test.err)"
    exit 0
fi

# same NAME SIZE COMMAND...: so many processes write `many` as one does; packets passed, and some were lost
same() {
    job_=$1 many_=$2
    shift 2
    works "${job_}_one" "$@" -o one
    works "${job_}_$many_" slowly "$many_" "$@" -o many
    if cmp -s one many; then pass "${job_}_bytes"; else fail "${job_}_bytes" "$(cmp one many)"; fi
    packets_=$(sed -n 's/^slow_link: \([0-9]*\) packets.*/\1/p' .test.err)
    lost_=$(sed -n 's/^slow_link: .* \([0-9]*\) lost$/\1/p' .test.err)
    if [ "${packets_:-0}" -gt 100 ] && [ "${lost_:-0}" -gt 0 ]; then pass "${job_}_link"; else fail "${job_}_link" "$(tail -1 .test.err)"; fi
    rm -f one many
}
same calibrate 3 "$pare" calibrate "$cnn" --data "$data/train.h5" --samples 50
same distill 2 "$pare" distill -q --teacher "$cnn" --student "$cnn" --data "$data/train.h5" --samples 600 --batch 16 --steps 3
same pipeline 3 "$pare" run "$cnn" --data "$data/test.h5" --samples 64 --batch 16 --parallel pipeline
finish
