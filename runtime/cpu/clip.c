/* SPDX-License-Identifier: Apache-2.0 */
/* Clip (13): y = min(max(x, low), high); an absent limit does not limit; NaN stays NaN. */
#include "runtime/cpu/ref.h"

#define ROW(type, memory, calc, load, store, clones)                                               \
    clones static void clip_##type(int64_t n, char *const *p, const int64_t *s, const void *arg)   \
    {                                                                                              \
        const pare_view *const *limit = arg;                                                       \
        const memory *in = (const memory *)p[1];                                                   \
        memory *out = (memory *)p[0];                                                              \
        const bool has_low = limit[0] != NULL, has_high = limit[1] != NULL;                        \
        const calc low = has_low ? (calc)load(*(const memory *)limit[0]->data) : (calc)0;          \
        const calc high = has_high ? (calc)load(*(const memory *)limit[1]->data) : (calc)0;        \
        if (has_low && has_high && s[0] == 1 && s[1] == 1)                                         \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                    \
            {                                                                                      \
                calc x = load(in[i]);                                                              \
                x = x < low ? low : x;                                                             \
                out[i] = store(x > high ? high : x);                                               \
            }                                                                                      \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                calc x = load(in[i * s[1]]);                                                       \
                x = has_low && x < low ? low : x;                                                  \
                out[i * s[0]] = store(has_high && x > high ? high : x);                            \
            }                                                                                      \
    }
#define PLAIN(type, memory, calc, load, store) ROW(type, memory, calc, load, store, )
ROW(f32, float, float, PARE_REF_AS_IS, PARE_REF_AS_IS, PARE_CLONES)
ROW(f64, double, double, PARE_REF_AS_IS, PARE_REF_AS_IS, )
ROW(f16, uint16_t, float, pare_f16_to_f32, pare_f32_to_f16, )
ROW(bf16, uint16_t, float, pare_bf16_to_f32, pare_f32_to_bf16, )
PARE_REF_INTS(PLAIN)

#define ENTRY(type, memory, calc, load, store) [PARE_##type] = clip_##type,
static const pare_ref_row clip_rows[PARE_DTYPE_COUNT] = {PARE_REF_NUMBERS(ENTRY)};

static bool clip_can(const pare_prep *p)
{
    for (int i = 1; i < p->in_count && i < 3; i++)
        if (p->in[i].dtype && p->in[i].dtype != p->in[0].dtype) return false;
    return clip_rows[p->in[0].dtype] != NULL;
}

static pare_status clip_run(const pare_call *c)
{
    const pare_view *limit[2] = {NULL, NULL};
    for (int i = 1; i < c->in_count && i < 3; i++)
        if (c->in[i].dtype && pare_view_count(&c->in[i]) > 0) limit[i - 1] = &c->in[i];
    pare_ref_each_call(c, 1, clip_rows[c->in[0].dtype], limit);
    return PARE_OK;
}

static const pare_kernel ref_clip = {.name = "ref_clip",
                                     .can = clip_can,
                                     .run = clip_run,
                                     .flags = PARE_KERNEL_REF | PARE_KERNEL_INPLACE};
const pare_kernel *const pare_cpu_clip[] = {&ref_clip, NULL};
