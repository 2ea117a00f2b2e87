/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpu/isa.h"
#include "runtime/exec/exec.h"

#include <omp.h>
#include <sched.h>

/* The n-th core of a set. */
static int core_at(const cpu_set_t *set, int n)
{
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, set) && n-- == 0) return core;
    return -1;
}

static void bind_to(int core)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    (void)sched_setaffinity(0, sizeof one, &one); /* a refusal costs speed only */
}

void pare_threads_bind(int threads)
{
    cpu_set_t all;
    if (threads < 2 || sched_getaffinity(0, sizeof all, &all) || CPU_COUNT(&all) < threads) return;
#pragma omp parallel num_threads(threads)
    bind_to(core_at(&all, omp_get_thread_num()));
}

const char *pare_cpu_isa_name(void)
{
    switch (pare_cpu_isa()) {
    case PARE_ISA_PORTABLE: return "portable";
    case PARE_ISA_AVX2: return "avx2";
    case PARE_ISA_AVX512: return "avx512";
    case PARE_ISA_VNNI: return "vnni";
    }
    return "";
}
