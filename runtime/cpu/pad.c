/* SPDX-License-Identifier: Apache-2.0 */
/* Pad (11 to 25) and ReverseSequence (10).
   Constant: the output is filled, then what is left of the input is copied into it. Reflect, edge,
   wrap: one table of input positions an axis, elements copied. */
#include "runtime/cpu/copy.h"
#include "runtime/ops/pad.h"

#include <inttypes.h>
#include <string.h>

typedef struct pad_state {
    pare_pad pad;
    int64_t *at[PARE_MAX_RANK]; /* (out) input positions; NULL in mode constant */
} pad_state;

static pare_status pad_prepare(pare_prep *p)
{
    pad_state *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    int rank = p->in[0].rank;
    p->state = s;
    PARE_TRY(pare_pad_read(p->node, rank, &s->pad));
    if (!s->pad.known)
        return PARE_FAIL_NODE(p->node, UNSUPPORTED,
                              "its pads are computed while it runs; they must be constant");
    return s->pad.mode == PARE_PAD_CONSTANT ? PARE_OK : pare_pad_positions(p, &s->pad, s->at);
}

static void pad_constant(const pare_call *c, const pare_pad *p)
{
    pare_view from = c->in[0], to = c->out[0];
    bool given = c->in_count > 2 && c->in[2].dtype;
    pare_copy_fill(&to, given ? c->in[2].data : NULL, c->threads);
    if (pare_pad_inside(p, &to, &from)) pare_copy_view(&to, &from, c->threads);
}

/* Elements of fewer than 8 bits. */
static void pad_codes(const pad_state *s, const pare_call *c)
{
    const pare_view *x = &c->in[0], *y = &c->out[0];
    const bool given = c->in_count > 2 && c->in[2].dtype;
    int64_t index[PARE_MAX_RANK] = {0};
    memset(y->data, 0, pare_view_bytes(y)); /* a part of the last byte may be left */
    do {
        int64_t from = 0;
        bool inside = true;
        for (int a = 0; a < y->rank; a++) {
            int64_t i = s->at[a] ? s->at[a][index[a]] : index[a] - s->pad.begin[a];
            inside = inside && i >= 0 && i < x->dim[a];
            from += i * x->stride[a];
        }
        uint8_t code = inside ? pare_ref_code(x, from) : given ? pare_ref_code(&c->in[2], 0) : 0;
        pare_ref_set_code(y, pare_ref_offset(y, index), code);
    } while (pare_ref_next(y, index));
}

static pare_status pad_run(const pare_call *c)
{
    const pad_state *s = c->state;
    const pare_view *x = &c->in[0], *y = &c->out[0];
    int64_t index[PARE_MAX_RANK] = {0};
    size_t bytes = (size_t)pare_type(y->dtype)->bits / 8;
    if (!pare_view_count(y)) return PARE_OK;
    if (!bytes) {
        pad_codes(s, c);
        return PARE_OK;
    }
    if (s->pad.mode == PARE_PAD_CONSTANT) {
        pad_constant(c, &s->pad);
        return PARE_OK;
    }
    do {
        int64_t from = 0;
        for (int a = 0; a < y->rank; a++) from += s->at[a][index[a]] * x->stride[a];
        memcpy(pare_ref_at(y, pare_ref_offset(y, index)), pare_ref_at(x, from), bytes);
    } while (pare_ref_next(y, index));
    return PARE_OK;
}

/* The first lengths[b] steps of each sequence in reverse, the others as they are. */
static pare_status reverse_sequence_run(const pare_call *c)
{
    const pare_view *x = &c->in[0], *y = &c->out[0];
    int batch = (int)pare_node_int(c->node, "batch_axis", 1), time = 1 - batch;
    int64_t index[PARE_MAX_RANK] = {0};
    size_t bytes = (size_t)pare_type(y->dtype)->bits / 8;
    if (!pare_view_count(y)) return PARE_OK;
    do {
        int64_t n = pare_ref_get_int(&c->in[1], index[batch]), t = index[time];
        if (n < 0 || n > x->dim[time])
            return PARE_FAIL_CALL(c, INPUT, "a length of %" PRId64 " is outside [0, %" PRId64 "]",
                                  n, x->dim[time]);
        int64_t from = pare_ref_offset(x, index) + ((t < n ? n - 1 - t : t) - t) * x->stride[time];
        memcpy(pare_ref_at(y, pare_ref_offset(y, index)), pare_ref_at(x, from), bytes);
    } while (pare_ref_next(y, index));
    return PARE_OK;
}

static bool pad_can(const pare_prep *p) { return pare_type(p->in[0].dtype)->bits > 0; }

static const pare_kernel copy_pad = {.name = "copy_pad",
                                     .can = pad_can,
                                     .prepare = pad_prepare,
                                     .run = pad_run,
                                     .flags = PARE_KERNEL_REF};
static const pare_kernel copy_reverse_sequence = {.name = "copy_reverse_sequence",
                                                  .can = pare_copy_can,
                                                  .run = reverse_sequence_run,
                                                  .flags = PARE_KERNEL_REF};

const pare_kernel *const pare_cpu_pad[] = {&copy_pad, NULL};
const pare_kernel *const pare_cpu_reverse_sequence[] = {&copy_reverse_sequence, NULL};
