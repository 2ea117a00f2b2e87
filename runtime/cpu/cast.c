/* SPDX-License-Identifier: Apache-2.0 */
/* Cast (19) and CastLike (19): any number or bool to any other, through a buffer of doubles or,
   where the source is an integer, of int64. Float to integer truncates towards zero and saturates
   (ONNX leaves out-of-range open); integer to integer keeps the low bits; float to 4 bits rounds to
   nearest even and saturates; anything to bool is x != 0. */
#include "runtime/cpu/ref.h"
#include "runtime/cpu/float16.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 256 };

/* Source and destination are read and written element by element through views of one row. */
typedef struct cast {
    pare_dtype to, from;
} cast;

#define LOAD_FLOAT(type, memory, calc, load, store)                                                \
    case PARE_##type:                                                                              \
        for (int64_t i = 0; i < n; i++) dst[i] = (double)load(((const memory *)src)[i * stride]);  \
        break;

static void load_doubles(double *dst, const char *src, int64_t n, int64_t stride, pare_dtype type)
{
    switch (type) {
        PARE_REF_FLOATS(LOAD_FLOAT)
    default: break;
    }
}

#define LOAD_INT(type, memory, calc, load, store)                                                  \
    case PARE_##type:                                                                              \
        for (int64_t i = 0; i < n; i++) dst[i] = (int64_t)((const memory *)src)[i * stride];       \
        break;

static void load_ints(int64_t *dst, const char *src, int64_t n, int64_t stride, pare_dtype type)
{
    switch (type) {
        PARE_REF_INTS(LOAD_INT)
    default:
        for (int64_t i = 0; i < n; i++) dst[i] = ((const uint8_t *)src)[i * stride] != 0;
    }
}

#define STORE_FLOAT(type, memory, calc, load, store)                                               \
    case PARE_##type:                                                                              \
        for (int64_t i = 0; i < n; i++) ((memory *)dst)[i * stride] = store((calc)src[i]);         \
        break;

static void store_doubles(char *dst, const double *src, int64_t n, int64_t stride, pare_dtype type)
{
    pare_view v = {.dtype = type, .data = dst};
    switch (type) {
        PARE_REF_FLOATS(STORE_FLOAT)
    default:
        for (int64_t i = 0; i < n; i++) pare_ref_set(&v, i * stride, src[i]);
    }
}
#undef STORE_FLOAT

#define STORE_INT(type, memory, calc, load, store)                                                 \
    case PARE_##type:                                                                              \
        for (int64_t i = 0; i < n; i++) ((memory *)dst)[i * stride] = (memory)src[i];              \
        break;
#define STORE_FLOAT(type, memory, calc, load, store)                                               \
    case PARE_##type:                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            ((memory *)dst)[i * stride] = store(wide ? (calc)(uint64_t)src[i] : (calc)src[i]);     \
        break;

/* wide: the integers are u64. */
static void store_ints(char *dst, const int64_t *src, int64_t n, int64_t stride, pare_dtype type,
                       bool wide)
{
    switch (type) {
        PARE_REF_INTS(STORE_INT)
        PARE_REF_FLOATS(STORE_FLOAT)
    default:
        for (int64_t i = 0; i < n; i++) ((uint8_t *)dst)[i * stride] = src[i] != 0;
    }
}

static void cast_row(int64_t n, char *const *p, const int64_t *s, const void *arg)
{
    const cast *c = arg;
    const int64_t to_size = pare_type(c->to)->bits / 8, from_size = pare_type(c->from)->bits / 8;
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t count = n - at < CHUNK ? n - at : CHUNK;
        char *dst = p[0] + at * s[0] * to_size;
        const char *src = p[1] + at * s[1] * from_size;
        if (pare_type_is_float(c->from)) {
            double buffer[CHUNK];
            load_doubles(buffer, src, count, s[1], c->from);
            store_doubles(dst, buffer, count, s[0], c->to);
        } else {
            int64_t buffer[CHUNK];
            load_ints(buffer, src, count, s[1], c->from);
            store_ints(dst, buffer, count, s[0], c->to, c->from == PARE_u64);
        }
    }
}

/* Types of fewer than 8 bits, which are packed and row-major, and minifloats: one element after the
   other. */
static void cast_elements(const pare_node *node, const pare_view *out, const pare_view *in)
{
    int64_t index[PARE_MAX_RANK] = {0};
    const char *mode = pare_node_string(node, "round_mode", "up");
    const bool saturate = pare_node_int(node, "saturate", 1) != 0;
    const pare_minifloat_round round = !strcmp(mode, "down")      ? PARE_ROUND_DOWN
                                       : !strcmp(mode, "nearest") ? PARE_ROUND_NEAREST
                                                                  : PARE_ROUND_UP;
    bool from_float = pare_type_is_float(in->dtype) || pare_is_minifloat(in->dtype);
    if (pare_view_count(out) == 0) return;
    memset(out->data, 0, pare_view_bytes(out)); /* an odd count leaves part of a byte */
    do {
        int64_t from = pare_ref_offset(in, index), to = pare_ref_offset(out, index);
        if (pare_is_minifloat(out->dtype))
            pare_ref_set_minifloat(out, to, (float)pare_ref_get(in, from), saturate, round);
        else if (pare_type_is_float(out->dtype))
            pare_ref_set(out, to, pare_ref_get(in, from));
        else if (from_float)
            pare_ref_set(out, to,
                         pare_type_is_packed(out->dtype) ? rint(pare_ref_get(in, from))
                                                         : pare_ref_get(in, from));
        else
            pare_ref_set_int(out, to, pare_ref_get_int(in, from));
    } while (pare_ref_next(out, index));
}

/* Between f32 and a half in the same dense order: vectors. */
static bool cast_dense(const pare_call *c)
{
    const pare_view *y = &c->out[0], *x = &c->in[0];
    bool narrows = x->dtype == PARE_f32 && (y->dtype == PARE_f16 || y->dtype == PARE_bf16);
    bool widens = y->dtype == PARE_f32 && (x->dtype == PARE_f16 || x->dtype == PARE_bf16);
    if (!(narrows || widens) || !pare_view_same_order(y, x)) return false;
    if (!pare_view_rowmajor(x) && !pare_view_nhwc(x)) return false;
    if (narrows)
        pare_narrow(y->data, x->data, y->dtype, pare_view_count(x), c->threads);
    else
        pare_widen(y->data, x->data, x->dtype, pare_view_count(x), c->threads);
    return true;
}

/* Not of whole bytes, or no type of C. */
static bool by_element(pare_dtype t) { return pare_type_is_packed(t) || pare_is_minifloat(t); }

static bool castable(const pare_view *v)
{
    return pare_ref_in_set(v->dtype, PARE_SET_ALL) ||
           (by_element(v->dtype) && (v->rank == 0 || pare_view_rowmajor(v)));
}

static bool cast_can(const pare_prep *p) { return castable(&p->in[0]) && castable(&p->out[0]); }

static pare_status cast_run(const pare_call *c)
{
    const pare_view *out = &c->out[0], *in = &c->in[0];
    if (cast_dense(c)) return PARE_OK;
    if (out->dtype == in->dtype)
        pare_ref_copy(out, in, c->threads);
    else if (by_element(out->dtype) || by_element(in->dtype))
        cast_elements(c->node, out, in);
    else
        pare_ref_each_call(c, 1, cast_row, &(cast){out->dtype, in->dtype});
    return PARE_OK;
}

static const pare_kernel ref_cast = {
    .name = "ref_cast", .can = cast_can, .run = cast_run, .flags = PARE_KERNEL_REF};
const pare_kernel *const pare_cpu_cast[] = {&ref_cast, NULL};
