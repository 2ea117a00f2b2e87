/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that begin before the kernel ahead of them has ended (runtime/cuda/device/dependent.cuh):
   the launch between two that both take part is shorter. */
#include "runtime/eval/roofline/internal.h"

#include <string.h>

/* Beginnings of names, and names of the CUDA column of ops.inc whose one kernel takes part. */
static const char *const taking_part[] = {
    "conv_stem",   "conv_depthwise", "conv_direct",        "conv_64x64", "conv_128x",
    "conv_split_", "conv_wgmma_",    "conv_sparse_wgmma_", "matmul_",    "attention"};
static const char *const operators[] = {
    "add",          "sub",          "mul",
    "div",          "prelu",        "pow",
    "where",        "cast",         "sum",
    "quantize",     "q_add",        "q_mul",
    "table",        "softmax",      "clip",
    "layer_norm",   "dequantize",   "max_pool",
    "average_pool", "mixed_binary", "q_average_pool",
    "min",          "max",          "mod",
    "q_softmax",    "q_layer_norm",
#define PARE_UNARY(op, function, ...) #function,
#define PARE_UNARY_FORM(...)
#include "runtime/ops/unary.inc"
};

static bool takes_part(const pare_roofline_step *s)
{
    if (strstr(s->kernel, "_f32_") || (s->launches > 1 && !strstr(s->kernel, "_split_")))
        return false; /* plain multiply-adds; what copies operands before a product */
    for (size_t i = 0; i < sizeof taking_part / sizeof *taking_part; i++)
        if (!strncmp(s->kernel, taking_part[i], strlen(taking_part[i]))) return true;
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (!strcmp(s->kernel, operators[i])) return true;
    return false;
}

void pare_overlap_apply(const pare_roofline_step *ahead, pare_roofline_step *s)
{
    if (!takes_part(s)) return;
    s->overlaps = s->launches - 1 + (ahead && takes_part(ahead));
    s->seconds -= s->overlaps * (PARE_LAUNCH_SECONDS - PARE_OVERLAP_SECONDS);
}

void pare_overlaps_apply(pare_roofline_step *step, int count)
{
    const pare_roofline_step *ahead[2] = {NULL, NULL}; /* in the streams */
    for (int i = 0; i < count; i++) {
        pare_roofline_step *s = &step[i];
        if (i && s[-1].region >= 0 && s[-1].region != s->region) ahead[0] = NULL; /* a join */
        if (!i || s[-1].region != s->region) ahead[1] = NULL;                     /* a fork */
        pare_overlap_apply(ahead[s->side], s);
        ahead[s->side] = s;
    }
}
