/* SPDX-License-Identifier: Apache-2.0 */
/* The time of a grid: blocks come in waves; a step of depth takes the longest of what its
   instructions, its tensor-core instructions, its shared memory and waiting take; memory bounds the
   whole (Williams, Waterman, Patterson 2009: "Roofline: an insightful visual performance model").
 */
#include "runtime/eval/roofline/internal.h"

#include <math.h>

/* Schedulers of an SM (CUDA C++ programming guide, compute capability 9.0). Cycles that a step of
   depth and a block's beginning take at least: latencies of shared memory and of HBM, as
   measured in arXiv 2402.13499. From so many waves on blocks end apart: half a wave is lost. */
enum { SCHEDULERS = 4, STEP_CYCLES = 200, BLOCK_CYCLES = 1500, MANY_WAVES = 6 };

double pare_gpu_grid_seconds(const pare_gpu_spec *spec, const pare_gpu_grid *g,
                             pare_roofline_step *out)
{
    const double sms = spec->sms, per = fmax(1, fmin(g->resident, ceil(g->blocks / sms)));
    const double warps = per * g->warps, rate = g->rate / sms / spec->clock;
    const double cycles[] = {
        [PARE_BOUND_ISSUE] = warps / SCHEDULERS * g->step / PARE_ISSUE,
        [PARE_BOUND_TENSOR] = g->tensor > 0 ? warps * g->tensor / rate : 0,
        [PARE_BOUND_SHARED] = per * g->shared / spec->shared,
        [PARE_BOUND_MEMORY] = 0,
        [PARE_BOUND_LATENCY] = STEP_CYCLES,
    };
    out->bound = PARE_BOUND_ISSUE;
    for (int b = 0; b <= PARE_BOUND_LATENCY; b++)
        if (cycles[b] > cycles[out->bound]) out->bound = (pare_bound)b;
    out->occupancy = (int)per;
    out->waves = g->blocks / (sms * per);
    const double waves = out->waves < MANY_WAVES ? ceil(out->waves) : out->waves + 0.5;
    return waves *
           (BLOCK_CYCLES + warps / SCHEDULERS * (g->ahead + g->behind) / PARE_ISSUE +
            g->steps * cycles[out->bound]) /
           spec->clock / g->reached;
}

double pare_issue_seconds(const pare_gpu_spec *spec, double instructions)
{
    return instructions / (spec->sms * SCHEDULERS * PARE_ISSUE * spec->clock);
}

void pare_bytes_add(const pare_gpu_spec *spec, double bytes, pare_roofline_step *out)
{
    const double moving = bytes / spec->hbm;
    if (!out->launches)
        out->bound = moving > PARE_LAUNCH_SECONDS ? PARE_BOUND_MEMORY : PARE_BOUND_LATENCY;
    out->launches++;
    out->bytes += bytes;
    out->seconds += moving + PARE_LAUNCH_SECONDS;
}

void pare_step_close(const pare_gpu_spec *spec, double seconds, double bytes,
                     pare_roofline_step *out)
{
    if (bytes / spec->hbm > seconds) {
        seconds = bytes / spec->hbm;
        out->bound = PARE_BOUND_MEMORY;
    }
    out->launches++;
    out->bytes += bytes;
    out->seconds += seconds + PARE_LAUNCH_SECONDS;
}

const char *pare_bound_name(pare_bound bound)
{
    static const char *const name[PARE_BOUNDS] = {"issue",  "tensor",  "shared",
                                                  "memory", "latency", "host"};
    return name[bound];
}
