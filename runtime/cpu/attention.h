/* SPDX-License-Identifier: Apache-2.0 */
/* What the CPU's kernels of Attention (23, 24) share: its attributes and its operands. */
#ifndef PARE_RUNTIME_CPU_ATTENTION_H
#define PARE_RUNTIME_CPU_ATTENTION_H

#include "runtime/ops/kernel.h"

typedef struct pare_sdpa {
    int64_t q_heads, kv_heads; /* attributes; 0: by rank 4 */
    double scale, cap;
    int mode;
    bool causal;
} pare_sdpa;

/* Inputs as four axes each; past ones and the mask may be absent. */
typedef struct pare_sdpa_views {
    pare_view q, y;
    pare_view key[2], value[2]; /* past, then present */
    int64_t past, keys;         /* how many are past; all */
    const pare_view *mask, *valid, *scores;
} pare_sdpa_views;

void pare_sdpa_read(const pare_prep *p, pare_sdpa *s);
pare_sdpa_views pare_sdpa_views_of(const pare_call *c, const pare_sdpa *s);

/* Writes the cache with what came to it, where it is an output. */
void pare_sdpa_present(const pare_call *c, const pare_sdpa_views *v);

#endif
