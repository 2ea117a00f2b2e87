/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of a convolution in plain C on dense doubles, images one after the other:
     ConvGradInput (dY, W) -> dX     the transposed sum
     ConvGradWeight (dY, X) -> dW */
#include "runtime/cpu/conv.h"
#include "runtime/cpu/fast.h"
#include "runtime/cpu/conv_grad.h"
#include "runtime/cpu/ref.h"

#include <string.h>

pare_status pare_conv_grad_read(const pare_prep *p, bool weight, pare_conv *out)
{
    const pare_view *dy = &p->in[0], *x = weight ? &p->in[1] : &p->out[0];
    const pare_view *w = weight ? &p->out[0] : &p->in[1];
    if (x->rank != w->rank || x->rank != dy->rank || x->rank < 3)
        return PARE_FAIL_NODE(p->node, INPUT, "its tensors differ in rank");
    PARE_TRY(pare_conv_read(p->node, x, w, out));
    bool fits = dy->dim[0] == out->n && dy->dim[1] == out->m && out->c == w->dim[1] * out->group;
    for (int i = 0; i < out->window.nd; i++)
        fits = fits && dy->dim[2 + i] == out->window.out[3 - out->window.nd + i];
    return fits ? PARE_OK
                : PARE_FAIL_NODE(p->node, INPUT, "its tensors' shapes contradict each other");
}

typedef struct state {
    pare_conv conv; /* of the forward pass */
    pare_conv back; /* in and out exchanged */
    pare_conv_room room;
    bool weight;
} state;

static pare_status prepare(pare_prep *p, bool weight)
{
    state *s = pare_arena_alloc(p->arena, 1, sizeof *s);
    if (!s) return PARE_MEMORY;
    s->weight = weight;
    PARE_TRY(pare_conv_grad_read(p, weight, &s->conv));
    s->back = s->conv;
    memcpy(s->back.window.in, s->conv.window.out, sizeof s->back.window.in);
    memcpy(s->back.window.out, s->conv.window.in, sizeof s->back.window.out);
    s->back.c = s->conv.m;
    s->back.m = s->conv.c;
    PARE_TRY(pare_conv_room_of(p->ctx, &s->conv, &s->room));
    p->scratch = s->room.bytes;
    p->state = s;
    return PARE_OK;
}

static pare_status input_prepare(pare_prep *p) { return prepare(p, false); }
static pare_status weight_prepare(pare_prep *p) { return prepare(p, true); }

static pare_status run(const pare_call *c)
{
    const state *s = c->state;
    double *room = c->scratch, *w = room + s->room.w, *x = room + s->room.x, *y = room + s->room.y;
    if (s->weight)
        memset(w, 0, (size_t)pare_view_count(&c->out[0]) * sizeof *w);
    else
        pare_dense_load(w, &c->in[1], 0);
    for (int64_t n = 0; n < s->conv.n; n++) {
        pare_view dy = pare_view_at(&c->in[0], 0, n);
        pare_view at = pare_view_at(s->weight ? &c->in[1] : &c->out[0], 0, n);
        pare_dense_load(y, &dy, 0);
        if (s->weight) {
            pare_dense_load(x, &at, 0);
            pare_conv_image_weight(&s->conv, w, y, x, c->threads);
        } else {
            pare_conv_image_transposed(&s->back, x, y, w, c->threads);
            pare_dense_store(&at, x);
        }
    }
    if (s->weight) pare_dense_store(&c->out[0], w);
    return PARE_OK;
}

static const pare_kernel ref_conv_grad_input = {.name = "ref_conv_grad_input",
                                                .can = pare_ref_can_floats,
                                                .prepare = input_prepare,
                                                .run = run,
                                                .flags = PARE_KERNEL_REF};
static const pare_kernel ref_conv_grad_weight = {.name = "ref_conv_grad_weight",
                                                 .can = pare_ref_can_floats,
                                                 .prepare = weight_prepare,
                                                 .run = run,
                                                 .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_conv_grad_input[] = {
    PARE_WITH_ONEDNN(&pare_onednn_conv_grad_input) & ref_conv_grad_input, NULL};
const pare_kernel *const pare_cpu_conv_grad_weight[] = {
    PARE_WITH_ONEDNN(&pare_onednn_conv_grad_weight) & ref_conv_grad_weight, NULL};
