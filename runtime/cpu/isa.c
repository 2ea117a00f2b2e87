/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpu/isa.h"

static pare_isa machine_isa(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return PARE_ISA_PORTABLE;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        return PARE_ISA_AVX2;
    return __builtin_cpu_supports("avx512vnni") ? PARE_ISA_VNNI : PARE_ISA_AVX512;
#else
    return PARE_ISA_PORTABLE;
#endif
}

pare_isa pare_cpu_isa(void)
{
    pare_isa isa = machine_isa();
#ifdef PARE_ONEDNN
    pare_isa limit = pare_onednn_isa();
    if (limit < isa) isa = limit;
#endif
    return isa;
}
