/* SPDX-License-Identifier: Apache-2.0 */
/* What the plain C kernels share: walking over views of any rank and strides (NHWC and broadcasts
   among them), typed elements, dispatch by type, and copies between memory orders.

   An element-by-element kernel is a row function: it gets n elements per operand with one stride
   each. pare_ref_each merges axes, so that dense operands arrive as one long row of stride 1, and
   runs rows on several threads where it pays (rows are independent: results do not depend on it).
 */
#ifndef PARE_RUNTIME_CPU_REF_H
#define PARE_RUNTIME_CPU_REF_H

#include "runtime/base/clones.h"
#include "runtime/base/minifloat.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/tensor_iterator.h"

/* n elements; p[0] is the output, p[1..] the inputs; s[k] the stride of operand k in elements. */
typedef void (*pare_ref_row)(int64_t n, char *const *p, const int64_t *s, const void *arg);

/* Calls row until every element of out was seen; inputs broadcast to out's dims (a shorter rank or
   a dim of 1 stretches). Nothing is called where out is empty. */
void pare_ref_each(const pare_view *out, const pare_view *const *in, int in_count, int threads,
                   pare_ref_row row, const void *arg);

/* The same for kernels whose inputs are call->in[0..in_count): most of them. */
void pare_ref_each_call(const pare_call *call, int in_count, pare_ref_row row, const void *arg);

/* A row of f16 or bf16 through the f32 row of the same operator: widened, computed, rounded. */
void pare_ref_halves(int64_t n, char *const *p, const int64_t *s, int inputs, pare_dtype half,
                     pare_ref_row row, const void *arg);

/* The axes without and with their flag, each in order, as two views of the same memory: kernels
   along axes walk the first and run along the second. */
void pare_ref_split(const pare_view *view, const bool *flag, pare_view *without, pare_view *with);

/* dst = src, same type and dims, any strides. Types of fewer than 8 bits only where both are
 * row-major. */
void pare_ref_copy(const pare_view *dst, const pare_view *src, int threads);

/* --- single elements, for kernels that walk by index --- */

/* Offset in elements of an index; the next index in row-major order (false after the last). */
int64_t pare_ref_offset(const pare_view *view, const int64_t *index);
bool pare_ref_next(const pare_view *view, int64_t *index);

/* The address of the element at this offset (types of whole bytes). */
static inline void *pare_ref_at(const pare_view *view, int64_t offset)
{
    return (char *)view->data + offset * (int64_t)(pare_type(view->dtype)->bits / 8);
}

/* Reads and writes one element as a double; writing rounds floats to nearest even (f16, bf16
   through f32) and truncates towards zero for integers, saturating; bool is value != 0. Types of
   fewer bits work where the view is row-major. */
double pare_ref_get(const pare_view *view, int64_t offset);
void pare_ref_set(const pare_view *view, int64_t offset, double value);

/* Writes one element of a minifloat type. */
void pare_ref_set_minifloat(const pare_view *view, int64_t offset, float value, bool saturate,
                            pare_minifloat_round round);

/* The same exactly for integers and bool (floats are truncated); writing keeps the low bits. */
int64_t pare_ref_get_int(const pare_view *view, int64_t offset);
void pare_ref_set_int(const pare_view *view, int64_t offset, int64_t value);

/* The code of an element of at most 8 bits, in the low bits. */
uint8_t pare_ref_code(const pare_view *view, int64_t offset);
void pare_ref_set_code(const pare_view *view, int64_t offset, int code);

/* A dense row-major float copy of a view's elements (f32, f16, bf16, f64, integers), and back. */
void pare_ref_to_f32(float *dst, const pare_view *src);
void pare_ref_from_f32(const pare_view *dst, const float *src);

/* --- dispatch by type ---
   X(type, memory, calc, load, store): element type, C type in memory, C type computed in, and the
   conversions between them. */
#define PARE_REF_AS_IS(x) (x)
#define PARE_REF_FLOATS(X)                                                                         \
    X(f32, float, float, PARE_REF_AS_IS, PARE_REF_AS_IS)                                           \
    X(f64, double, double, PARE_REF_AS_IS, PARE_REF_AS_IS)                                         \
    X(f16, uint16_t, float, pare_f16_to_f32, pare_f32_to_f16)                                      \
    X(bf16, uint16_t, float, pare_bf16_to_f32, pare_f32_to_bf16)
#define PARE_REF_INTS(X)                                                                           \
    X(s8, int8_t, int8_t, PARE_REF_AS_IS, PARE_REF_AS_IS)                                          \
    X(u8, uint8_t, uint8_t, PARE_REF_AS_IS, PARE_REF_AS_IS)                                        \
    X(s16, int16_t, int16_t, PARE_REF_AS_IS, PARE_REF_AS_IS)                                       \
    X(u16, uint16_t, uint16_t, PARE_REF_AS_IS, PARE_REF_AS_IS)                                     \
    X(s32, int32_t, int32_t, PARE_REF_AS_IS, PARE_REF_AS_IS)                                       \
    X(u32, uint32_t, uint32_t, PARE_REF_AS_IS, PARE_REF_AS_IS)                                     \
    X(s64, int64_t, int64_t, PARE_REF_AS_IS, PARE_REF_AS_IS)                                       \
    X(u64, uint64_t, uint64_t, PARE_REF_AS_IS, PARE_REF_AS_IS)
#define PARE_REF_NUMBERS(X) PARE_REF_FLOATS(X) PARE_REF_INTS(X)

/* Sets of types for can(): bits 1 << dtype. */
#define PARE_BIT(type) (1u << PARE_##type)
enum {
    PARE_SET_FLOATS = PARE_BIT(f32) | PARE_BIT(f64) | PARE_BIT(f16) | PARE_BIT(bf16),
    PARE_SET_INTS = PARE_BIT(s8) | PARE_BIT(u8) | PARE_BIT(s16) | PARE_BIT(u16) | PARE_BIT(s32) |
                    PARE_BIT(u32) | PARE_BIT(s64) | PARE_BIT(u64),
    PARE_SET_NUMBERS = PARE_SET_FLOATS | PARE_SET_INTS,
    PARE_SET_ALL = PARE_SET_NUMBERS | PARE_BIT(bool)
};

static inline bool pare_ref_in_set(pare_dtype type, unsigned set) { return set >> type & 1; }

/* can() of kernels that take any type of a set on input 0. */
bool pare_ref_can_floats(const pare_prep *prep);
bool pare_ref_can_f32_f64(const pare_prep *prep);
bool pare_ref_can_numbers(const pare_prep *prep);
bool pare_ref_can_all(const pare_prep *prep);

#endif
