/* SPDX-License-Identifier: Apache-2.0 */
/* What runs side by side: the regions that a plan has by the same sizes (exec/branches.h). Two
   nodes depend on each other here by the tensors that one makes and the other reads; that a plan
   also has results on the memory of a dying input, which puts more steps in order, is not seen. */
#include "runtime/eval/roofline/internal.h"
#include "runtime/exec/branches.h"

#include <math.h>

/* The tensor whose bytes it has. */
static const pare_value *storage_of(const pare_value *v)
{
    while (v && v->producer && pare_op_is_alias(v->producer)) v = v->producer->in[0];
    return v;
}

static double bytes_of(pare_value *const *value, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++) {
        size_t bytes;
        const pare_value *v = value[i];
        if (v && pare_shape_known(&v->shape) &&
            pare_type_bytes(v->dtype, pare_shape_count(&v->shape), &bytes))
            sum += (double)bytes;
    }
    return sum;
}

/* Does it make one of these? What a Concat in place joins its inputs' nodes make. */
static bool makes(const pare_roofline_maker *m, const pare_node *maker, pare_value *const *value,
                  int count)
{
    for (int i = 0; i < count; i++) {
        const pare_value *x = storage_of(value[i]);
        const pare_node *n = x ? x->producer : NULL;
        if (n == maker) return true;
        if (n && pare_parts_all_joined(m->parts, n) && makes(m, maker, n->in, n->in_count))
            return true;
    }
    return false;
}

static void step_read(const pare_roofline_maker *m, const pare_node *const *node,
                      const pare_roofline_step *step, int i, pare_branch_step *out)
{
    const pare_node *n = node[i];
    const pare_value *x = n->in_count ? n->in[0] : NULL, *y = n->out_count ? n->out[0] : NULL;
    *out =
        (pare_branch_step){.macs = step[i].macs,
                           .outputs = y ? fmax(0, (double)pare_shape_count(&y->shape)) : 0,
                           .bytes = bytes_of(n->in, n->in_count) + bytes_of(n->out, n->out_count),
                           .type = x ? x->dtype : step[i].dtype,
                           .alone = step[i].bound == PARE_BOUND_HOST};
    for (int k = 0; k < PARE_BRANCH_REACH && k < i; k++)
        if (makes(m, node[i - 1 - k], n->in, n->in_count)) out->after |= (uint64_t)1 << k;
}

/* A region takes the longer of its two sets, at least what all its bytes take of HBM and all its
   blocks of the SMs, and the fork. Returns what that saves. */
static double region_saves(const pare_gpu_spec *spec, const pare_roofline_step *step, int count)
{
    double set[2] = {0}, bytes = 0, blocks = 0;
    for (int i = 0; i < count; i++) {
        const pare_roofline_step *s = &step[i];
        const double running = s->seconds - s->launches * PARE_LAUNCH_SECONDS +
                               s->overlaps * (PARE_LAUNCH_SECONDS - PARE_OVERLAP_SECONDS);
        set[s->side] += s->seconds;
        bytes += s->bytes / spec->hbm;
        blocks += s->waves > 0 ? running * fmin(1, s->waves) : s->bytes / spec->hbm;
    }
    const double longest = fmax(fmax(set[0], set[1]), fmax(bytes, blocks));
    return fmax(0, set[0] + set[1] - longest - PARE_BRANCH_SECONDS);
}

pare_status pare_branches_mark(const pare_roofline_maker *m, const pare_node *const *node,
                               pare_roofline_step *step, int count)
{
    pare_branch_step *chosen = pare_arena_alloc(m->arena, (size_t)count + 1, sizeof *chosen);
    if (!chosen) return PARE_MEMORY;
    for (int i = 0; i < count; i++) step_read(m, node, step, i, &chosen[i]);
    PARE_TRY(pare_branches_choose(m->ctx, chosen, count));
    for (int i = 0; i < count; i++) {
        step[i].region = chosen[i].region;
        step[i].side = chosen[i].side;
    }
    return PARE_OK;
}

double pare_branches_save(const pare_gpu_spec *spec, const pare_roofline_step *step, int count)
{
    double saved = 0;
    for (int i = 0, n; i < count; i += n) {
        for (n = 1; i + n < count && step[i + n].region == step[i].region; n++) continue;
        if (step[i].region >= 0) saved += region_saves(spec, step + i, n);
    }
    return saved;
}
