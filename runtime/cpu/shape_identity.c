/* SPDX-License-Identifier: Apache-2.0 */
/* Identity (21), and Dropout (13) outside training: the input as it is, the mask all true. */
#include "runtime/cpu/ref.h"
#include "runtime/ops/infer.h"

#include <string.h>

static pare_status copy_run(const pare_call *c)
{
    if (c->out[0].data != c->in[0].data) pare_ref_copy(&c->out[0], &c->in[0], c->threads);
    return PARE_OK;
}

/* Packed types are moved as they are. */
static bool copy_can(const pare_prep *p)
{
    int bits = pare_type(p->in[0].dtype)->bits;
    return bits == 8 || bits == 16 || bits == 32 || bits == 64 ||
           (bits == 4 && pare_view_rowmajor(&p->in[0]) && pare_view_rowmajor(&p->out[0]));
}

static const pare_kernel alias_identity = {.name = "alias_identity",
                                           .can = copy_can,
                                           .run = copy_run,
                                           .flags = PARE_KERNEL_ALIAS | PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_identity[] = {&alias_identity, NULL};

static void true_row(int64_t n, char *const *p, const int64_t *s, const void *arg)
{
    (void)arg;
    for (int64_t i = 0; i < n; i++) p[0][i * s[0]] = 1;
}

/* Dropping nothing is the same in training. */
static pare_status dropout_run(const pare_call *c)
{
    bool training = c->in_count > 2 && c->in[2].dtype && pare_ref_get_int(&c->in[2], 0);
    double ratio = c->in_count > 1 && c->in[1].dtype ? pare_ref_get(&c->in[1], 0) : 0.5;
    if (training && ratio != 0)
        return PARE_FAIL_NODE(c->node, UNSUPPORTED,
                              "training_mode is not supported: export for inference");
    if (c->out_count > 1 && c->out[1].dtype)
        pare_ref_each(&c->out[1], NULL, 0, c->threads, true_row, NULL);
    return copy_run(c);
}

static bool dropout_can(const pare_prep *p)
{
    return copy_can(p) && pare_ref_in_set(p->in[0].dtype, PARE_SET_FLOATS);
}

static const pare_kernel ref_dropout = {.name = "ref_dropout",
                                        .can = dropout_can,
                                        .run = dropout_run,
                                        .flags = PARE_KERNEL_REF | PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cpu_dropout[] = {&ref_dropout, NULL};
