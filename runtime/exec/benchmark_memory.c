/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/exec/benchmark_memory.h"

#include "runtime/base/random.h"
#include "runtime/base/size.h"

enum { ALIGN = 256, PATTERN = 1 << 18 /* elements that repeat */ };

/* --- places --- */

static size_t room(size_t *end, const pare_view *v)
{
    const size_t at = *end;
    if (v->dtype != PARE_NOTYPE) *end += pare_align_up(pare_view_reach(v), ALIGN);
    return at;
}

static size_t bytes_of(const pare_prep *p)
{
    size_t end = 0;
    for (int i = 0; i < p->in_count; i++) (void)room(&end, &p->in[i]);
    for (int i = 0; i < p->out_count; i++) (void)room(&end, &p->out[i]);
    return end + ALIGN;
}

void pare_benchmark_memory_place(const pare_benchmark_memory *m, int set, const pare_prep *p,
                                 pare_view *in, pare_view *out)
{
    char *base = m->memory + (size_t)set * m->set_bytes;
    size_t end = 0;
    for (int i = 0; i < p->in_count; i++) in[i].data = base + room(&end, &p->in[i]);
    for (int i = 0; i < p->out_count; i++) out[i].data = base + room(&end, &p->out[i]);
    if (p->out_count && p->share >= 0) out[0].data = in[p->share].data;
}

/* --- contents --- */

static bool is_random(pare_dtype t)
{
    return pare_type_is_float(t) || t == PARE_s8 || t == PARE_u8 || t == PARE_bool;
}

/* Floats in [-1, 1), bytes of any value, bools. */
static void pattern_fill(pare_dtype type, char *to)
{
    pare_random r = {(uint64_t)type};
    const size_t bytes = (size_t)pare_type(type)->bits / 8;
    for (size_t i = 0; i < PATTERN; i++) {
        char *at = to + i * bytes;
        const double x = 2 * pare_random_unit(&r) - 1;
        if (type == PARE_f64)
            *(double *)(void *)at = x;
        else if (type == PARE_bool)
            *at = x < 0;
        else if (bytes == 1)
            *at = (char)(x * 128);
        else
            pare_type(type)->from_f32_ref(at, (float)x);
    }
}

static pare_status upload_repeated(const pare_prep *p, char *to, size_t bytes, const char *pattern,
                                   size_t period)
{
    const pare_device *d = p->device;
    for (size_t at = 0; at < bytes; at += period)
        PARE_TRY(d->backend->upload(p->ctx, d->setup, to + at, pattern,
                                    bytes - at < period ? bytes - at : period));
    return PARE_OK;
}

/* Random numbers of the type; NULL: out of memory. */
static const char *pattern_of(pare_benchmark_memory *m, pare_dtype type, size_t period)
{
    char **pattern = &m->pattern[type];
    if (!*pattern) {
        *pattern = pare_arena_alloc(&m->arena, period, 1);
        if (*pattern) pattern_fill(type, *pattern);
    }
    return *pattern;
}

/* The same input of all sets. */
static pare_status input_fill(pare_benchmark_memory *m, const pare_prep *p, size_t at,
                              const pare_view *v)
{
    const size_t bytes = pare_view_reach(v);
    size_t period = bytes;
    const char *from = v->data;
    if (!bytes || (!from && !is_random(v->dtype))) return PARE_OK;
    if (!from) {
        period = PATTERN * (size_t)pare_type(v->dtype)->bits / 8;
        from = pattern_of(m, v->dtype, period);
        if (!from) return PARE_MEMORY;
    }
    for (int s = 0; s < m->sets; s++)
        PARE_TRY(
            upload_repeated(p, m->memory + (size_t)s * m->set_bytes + at, bytes, from, period));
    return p->device->backend->sync(p->ctx, p->device->setup);
}

static pare_status fill(pare_benchmark_memory *m, const pare_prep *p)
{
    const pare_device *d = p->device;
    size_t end = 0;
    PARE_TRY(d->backend->fill(p->ctx, d->setup, m->memory, 0,
                              (size_t)m->sets * m->set_bytes + m->flush));
    PARE_TRY(d->backend->sync(p->ctx, d->setup));
    for (int i = 0; i < p->in_count; i++)
        PARE_TRY(input_fill(m, p, room(&end, &p->in[i]), &p->in[i]));
    return PARE_OK;
}

/* --- opening, closing --- */

static pare_status grant(pare_benchmark_memory *m, const pare_prep *p)
{
    void *memory = NULL;
    pare_status st = p->device->backend->alloc(p->ctx, p->device, &memory,
                                               (size_t)m->sets * m->set_bytes + m->flush);
    m->memory = memory;
    return st;
}

pare_status pare_benchmark_memory_open(pare_benchmark_memory *out, const pare_prep *prep)
{
    const size_t cold = 2 * prep->device->cache, one = bytes_of(prep);
    *out = (pare_benchmark_memory){.sets = 1, .set_bytes = one};
    if (one < cold) {
        const size_t sets = (cold + one - 1) / one;
        out->sets = sets < PARE_BENCHMARK_SETS ? (int)sets : PARE_BENCHMARK_SETS;
        out->flush = cold;
    }
    pare_status st = grant(out, prep);
    if (st == PARE_MEMORY && out->flush) {
        pare_ctx_clear(prep->ctx);
        out->sets = 1, out->flush = 0;
        st = grant(out, prep);
    }
    if (st != PARE_OK) return st;
    out->device = prep->device;
    pare_arena_init(&out->arena, prep->ctx);
    st = fill(out, prep);
    if (st != PARE_OK) pare_benchmark_memory_close(out);
    return st;
}

void pare_benchmark_memory_close(pare_benchmark_memory *m)
{
    if (!m->device) return;
    m->device->backend->free(m->device, m->memory); /* waits for the copies */
    pare_arena_free(&m->arena);
    *m = (pare_benchmark_memory){0};
}

pare_status pare_benchmark_memory_flush(pare_ctx *ctx, const pare_benchmark_memory *m)
{
    const pare_device *d = m->device;
    if (!m->flush) return PARE_OK;
    return d->backend->fill(ctx, d->setup, m->memory + (size_t)m->sets * m->set_bytes, 0, m->flush);
}
