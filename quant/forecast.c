/* SPDX-License-Identifier: Apache-2.0 */
/* What can be said of a conversion's faults from its numbers alone: quantization warns of them, and
   diagnosis looks for them in finished files. */
#include "calib/histogram.h"
#include "quant/internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* A list of texts in the model's arena, full at powers of two. */
static pare_status append(pare_model *model, const char ***list, int *count, const char *text)
{
    const int n = *count;
    if ((n & (n - 1)) == 0) {
        const char **more = pare_arena_alloc(&model->arena, (size_t)(n ? 2 * n : 1), sizeof *more);
        if (!more) return PARE_MEMORY;
        if (n) memcpy(more, *list, (size_t)n * sizeof *more);
        *list = more;
    }
    (*list)[n] = pare_arena_strdup(&model->arena, text);
    if (!(*list)[n]) return PARE_MEMORY;
    (*count)++;
    return PARE_OK;
}

pare_status pare_quant_note(pare_model *model, pare_quant_facts *facts, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return append(model, &facts->note, &facts->note_count, text);
}

pare_status pare_quant_warn(pare_model *model, pare_quant_facts *facts, pare_fault fault,
                            const pare_node *node, const char *tensor, const char *format, ...)
{
    char text[1024];
    const char *name = node ? pare_quant_node_name(node) : NULL;
    const int n =
        name ? snprintf(text, sizeof text, "%s: node '%s', tensor '%s': ", pare_fault_name(fault),
                        name, tensor)
             : snprintf(text, sizeof text, "%s: input '%s': ", pare_fault_name(fault), tensor);
    if (n >= 0 && (size_t)n < sizeof text) {
        va_list args;
        va_start(args, format);
        vsnprintf(text + n, sizeof text - (size_t)n, format, args);
        va_end(args);
    }
    return append(model, &facts->warning, &facts->warning_count, text);
}

/* --- integers --- */

static bool is_nonzero(const pare_tensor *t, int64_t i)
{
    if (t->dtype == PARE_s8) return ((const int8_t *)t->data)[i] != 0;
    return pare_quant_number(t->data, i) != 0;
}

int64_t pare_quant_dead_channel(const pare_tensor *w, int axis, const pare_tensor *made)
{
    const float LEAST = 1e-30f; /* a channel below it is dead in the float model, too */
    const pare_quant_weight_view v = pare_quant_weight_look(w, axis);
    for (int64_t c = 0; c < v.channels; c++) {
        bool was = false, is = false;
        for (int64_t o = 0; o < v.outer && !is; o++)
            for (int64_t i = 0; i < v.inner && !is; i++) {
                const int64_t at = (o * v.channels + c) * v.inner + i;
                was |= fabsf(pare_quant_number(w->data, at)) > LEAST;
                is |= is_nonzero(made, at);
            }
        if (was && !is) return c;
    }
    return -1;
}

/* --- f16 (IEEE 754 binary16): normal numbers from 2^-14, subnormal ones from 2^-24, in steps of
   2^-24: below 2^-14 a number has fewer than 11 bits, below 2^-25 none --- */

static const double NORMAL = 0x1p-14;

bool pare_quant_f16_small(double largest) { return largest > 0 && largest < NORMAL; }

double pare_quant_seen_largest(const pare_ranges *ranges, const char *name)
{
    const pare_stats *s = ranges ? pare_ranges_find(ranges, name) : NULL;
    if (!s || !s->histogram->count) return NAN;
    return fmax(fabs((double)s->histogram->min), fabs((double)s->histogram->max));
}

bool pare_quant_f16_loses(const pare_tensor *t)
{
    const double MOST_BITS = 0x1p-12; /* 6 of 11 bits, squared */
    double energy = 0, error = 0;
    for (int64_t i = 0; i < t->count; i++) {
        const double x = fabs((double)pare_quant_number(t->data, i));
        if (!isfinite(x)) continue;
        energy += x * x;
        if (x >= NORMAL) continue;
        const double e = x - rint(x * 0x1p24) * 0x1p-24;
        error += e * e;
    }
    return error > MOST_BITS * energy;
}
