/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution by oneDNN for Conv and FusedConv: f32 (f16 and bf16 through f32), and 8-bit inputs
   where its sums are exact, which takes VNNI: before it, oneDNN's products saturate at 16 bits.

   oneDNN has several implementations of one convolution. `onednn_conv` takes the one that is
   fastest for most shapes (its directly generated loops before its batched small matrix products;
   the reverse for first layers with large windows); the other kernels let a stopwatch choose. */
#include "runtime/cpu/fast.h"
#include "runtime/cpu/isa.h"
#include "runtime/cpu/onednn/conv.h"

#include <string.h>

typedef enum family { JIT, BRG, GEMM, NO_FAMILY } family;

static family family_of(const char *name, bool int8)
{
    if (int8 && !strstr(name, "vnni") && !strstr(name, "amx")) return NO_FAMILY;
    if (strstr(name, "ref")) return NO_FAMILY;
    if (strstr(name, "gemm")) return GEMM;
    if (!strncmp(name, "brg", 3) || !strncmp(name, "brdgmm", 6)) return BRG;
    return !strncmp(name, "jit", 3) ? JIT : NO_FAMILY;
}

bool pare_dnnl_image_desc(const pare_view *v, dnnl_memory_desc_t *out)
{
    static const dnnl_format_tag_t plain[] = {dnnl_ncw, dnnl_nchw, dnnl_ncdhw};
    dnnl_format_tag_t tag = dnnl_nhwc;
    if (!pare_view_nhwc(v)) {
        if (!pare_view_rowmajor(v)) return false;
        tag = plain[v->rank - 3];
    }
    dnnl_dims_t dim = {0};
    for (int i = 0; i < v->rank; i++) dim[i] = v->dim[i];
    return !dnnl_memory_desc_init_by_tag(out, v->rank, dim, pare_dnnl_type(v->dtype), tag);
}

bool pare_dnnl_weight_desc(const pare_view *w, int64_t group, bool any, dnnl_memory_desc_t *out)
{
    static const dnnl_format_tag_t plain[] = {dnnl_abc, dnnl_abcd, dnnl_abcde, dnnl_abcdef};
    dnnl_dims_t dim;
    int rank = 0;
    if (!pare_view_rowmajor(w)) return false;
    if (group > 1) dim[rank++] = group;
    dim[rank++] = w->dim[0] / group;
    for (int i = 1; i < w->rank; i++) dim[rank++] = w->dim[i];
    return !dnnl_memory_desc_init_by_tag(out, rank, dim, pare_dnnl_type(w->dtype),
                                         any ? dnnl_format_tag_any : plain[rank - 3]);
}

typedef struct descs {
    dnnl_memory_desc_t x, w, w_any, b, y;
} descs;

static bool descs_make(const pare_prep *p, const pare_conv_args *a, descs *d)
{
    dnnl_dims_t channels = {a->m};
    return pare_dnnl_image_desc(&p->in[0], &d->x) && pare_dnnl_image_desc(&p->out[0], &d->y) &&
           pare_dnnl_weight_desc(&p->in[1], a->win.group, false, &d->w) &&
           pare_dnnl_weight_desc(&p->in[1], a->win.group, true, &d->w_any) &&
           !dnnl_memory_desc_init_by_tag(&d->b, 1, channels, dnnl_f32, dnnl_a);
}

static bool operation_make(const pare_conv_args *a, const descs *d, dnnl_convolution_desc_t *out)
{
    const pare_window *w = &a->win;
    int first = 3 - w->nd;
    dnnl_dims_t stride, dilation, begin, end;
    for (int i = 0; i < w->nd; i++) {
        stride[i] = w->stride[first + i];
        dilation[i] = w->dilation[first + i] - 1;
        begin[i] = w->begin[first + i];
        /* only what the last window reaches: the rest of an uneven pad is never read */
        end[i] = (w->out[first + i] - 1) * stride[i] +
                 (w->kernel[first + i] - 1) * (dilation[i] + 1) + 1 - w->in[first + i] - begin[i];
    }
    return !dnnl_dilated_convolution_forward_desc_init(
        out, dnnl_forward_inference, dnnl_convolution_direct, &d->x, &d->w_any,
        a->at.bias >= 0 ? &d->b : NULL, &d->y, stride, dilation, begin, end);
}

/* Large windows over few channels keep the generated loops short of work. */
static family preferred(const pare_conv_args *a)
{
    bool stem = a->c <= 4 && a->win.kernel[2] >= 5 && !a->int8;
    return stem ? BRG : JIT;
}

/* oneDNN 2.6 without AVX adds a sum's operand from memory as if all rows were aligned to 16 bytes:
   it ends with a segmentation fault where channels side by side are no multiple of 4. */
static bool is_faulty(const char *name, const pare_conv_args *a)
{
    return strstr(name, "sse41") && a->at.residual >= 0 && a->m % 4;
}

/* The first implementation of the family; wanted NO_FAMILY: of the preferred one, else any. */
static dnnl_primitive_desc_t choose(dnnl_engine_t engine, const dnnl_convolution_desc_t *op,
                                    dnnl_primitive_attr_t attr, family wanted,
                                    const pare_conv_args *a)
{
    dnnl_primitive_desc_iterator_t it;
    dnnl_primitive_desc_t found = NULL;
    bool free_choice = wanted == NO_FAMILY;
    if (free_choice) wanted = preferred(a);
    if (dnnl_primitive_desc_iterator_create(&it, op, attr, engine, NULL)) return NULL;
    do {
        dnnl_primitive_desc_t desc = dnnl_primitive_desc_iterator_fetch(it);
        const char *name = "";
        if (desc) dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name);
        family is = family_of(name, a->int8);
        bool better = is == wanted || (free_choice && !found && is != NO_FAMILY);
        if (desc && better && !is_faulty(name, a)) {
            if (found) dnnl_primitive_desc_destroy(found);
            found = desc;
            if (is == wanted) break;
        } else if (desc) {
            dnnl_primitive_desc_destroy(desc);
        }
    } while (!dnnl_primitive_desc_iterator_next(it));
    dnnl_primitive_desc_iterator_destroy(it);
    return found;
}

static bool types_fit(const pare_prep *p, const pare_conv_args *a)
{
    pare_dtype x = p->in[0].dtype, w = p->in[1].dtype, y = p->out[0].dtype;
    if (a->int8) {
        if (w != PARE_s8 || pare_cpu_isa() < PARE_ISA_VNNI) return false;
        return pare_type_is_int8(y) || y == PARE_f32;
    }
    if (x != w || x != y || (x != PARE_f32 && x != PARE_f16 && x != PARE_bf16)) return false;
    return a->at.bias < 0 || p->in[a->at.bias].dtype == x;
}

/* What can be said before oneDNN is asked. */
static bool shape_fits(const pare_prep *p, const pare_conv_args *a)
{
    const pare_view *w = &p->in[1];
    if ((!w->data && w->dtype != PARE_f32) || !pare_view_rowmajor(w)) return false;
    if (!types_fit(p, a)) return false;
    if (pare_view_count(&p->in[0]) == 0 || pare_view_count(&p->out[0]) == 0) return false;
    for (int i = 0; i < 3; i++)
        if (a->win.begin[i] < 0 || a->win.end[i] < 0) return false;
    return a->at.residual < 0 || pare_dnnl_residual_fits(&p->in[a->at.residual], &p->out[0]);
}

static bool attr_make(const pare_conv_args *a, dnnl_primitive_attr_t *out)
{
    pare_dnnl_attr in = {.act = &a->act,
                         .q = a->int8 ? &a->q : NULL,
                         .epilogue = &a->epilogue,
                         .scale = a->scale,
                         .scale_count = a->m,
                         .mask = 2,
                         .sum = a->at.residual >= 0,
                         .alpha = 1};
    return pare_dnnl_attr_make(&in, out);
}

/* A rank-3 to 5 node with everything in place; false where there is nothing for oneDNN. */
static bool read_args(const pare_prep *p, pare_conv_args *a)
{
    const pare_view *x = &p->in[0];
    if (x->rank < 3 || x->rank > 5 || p->in[1].rank != x->rank) return false;
    if (pare_conv_args_read(p, a) == PARE_OK) return true;
    pare_ctx_clear(p->ctx);
    return false;
}

static dnnl_primitive_desc_t describe(const pare_prep *p, const pare_conv_args *a, descs *d,
                                      dnnl_engine_t engine, family wanted)
{
    dnnl_convolution_desc_t op;
    dnnl_primitive_attr_t attr;
    if (!shape_fits(p, a) || !descs_make(p, a, d) || !operation_make(a, d, &op)) return NULL;
    if (!attr_make(a, &attr)) return NULL;
    dnnl_primitive_desc_t desc = choose(engine, &op, attr, wanted, a);
    dnnl_primitive_attr_destroy(attr);
    return desc;
}

static const char *name_of(dnnl_primitive_desc_t desc)
{
    const char *name = "";
    dnnl_primitive_desc_query(desc, dnnl_query_impl_info_str, 0, &name);
    return name;
}

/* oneDNN 2.6 describes a grouped 8-bit 1x1 convolution with stride 2, float bias and a table-driven
   activation that it then fails to generate: for grouped ones the answer is to make it. */
static bool can_make(const pare_conv_args *a, const_dnnl_primitive_desc_t desc)
{
    dnnl_primitive_t made;
    if (!a->int8 || a->win.group == 1) return true;
    if (dnnl_primitive_create(&made, desc)) return false;
    dnnl_primitive_destroy(made);
    return true;
}

/* The alternatives serve only where they are not what onednn_conv takes anyway. */
static bool can(const pare_prep *p, family wanted)
{
    pare_conv_args a;
    descs d;
    dnnl_engine_t engine;
    if (!read_args(p, &a) || dnnl_engine_create(&engine, dnnl_cpu, 0)) return false;
    dnnl_primitive_desc_t desc = describe(p, &a, &d, engine, wanted);
    bool ok = desc && can_make(&a, desc);
    if (ok && wanted != NO_FAMILY) {
        dnnl_primitive_desc_t usual = describe(p, &a, &d, engine, NO_FAMILY);
        ok = usual && strcmp(name_of(usual), name_of(desc));
        if (usual) dnnl_primitive_desc_destroy(usual);
    }
    if (desc) dnnl_primitive_desc_destroy(desc);
    dnnl_engine_destroy(engine);
    return ok;
}

static double macs_of(const pare_conv_args *a)
{
    const pare_window *w = &a->win;
    double n = (double)(a->n * a->m * a->cg);
    for (int i = 0; i < 3; i++) n *= (double)(w->out[i] * w->kernel[i]);
    return n;
}

static pare_status fill(pare_prep *p, pare_dnnl *d, const pare_conv_args *a, const descs *m,
                        dnnl_primitive_desc_t desc)
{
    PARE_TRY(pare_dnnl_add_in(p, d, DNNL_ARG_SRC, 0, &m->x));
    PARE_TRY(pare_dnnl_add_packed(p, d, DNNL_ARG_WEIGHTS, 1, &m->w,
                                  dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0)));
    if (a->bias)
        pare_dnnl_add(d, DNNL_ARG_BIAS, PARE_DNNL_FIXED, a->at.bias, (void *)(uintptr_t)a->bias,
                      &m->b);
    else if (a->at.bias >= 0)
        PARE_TRY(pare_dnnl_add_in(p, d, DNNL_ARG_BIAS, a->at.bias, &m->b));
    PARE_TRY(pare_dnnl_add_out(p, d, &m->y));
    if (a->at.residual >= 0) pare_dnnl_set_residual(p, d, a->at.residual, a->int8 ? &a->q : NULL);
    return pare_dnnl_make(p, d, desc);
}

static pare_status prepare(pare_prep *p, family wanted)
{
    pare_conv_args a;
    descs m;
    pare_dnnl *d;
    PARE_TRY(pare_conv_args_read(p, &a));
    PARE_TRY(pare_dnnl_new(p, &d));
    d->threads = pare_dnnl_threads(p, macs_of(&a), a.int8);
    pare_dnnl_use_threads(d->threads);
    dnnl_primitive_desc_t desc = describe(p, &a, &m, d->engine, wanted);
    pare_status st = desc ? fill(p, d, &a, &m, desc)
                          : pare_dnnl_fail(p->node, dnnl_unimplemented, "this convolution");
    pare_dnnl_use_threads(p->threads);
    if (desc) dnnl_primitive_desc_destroy(desc);
    if (st != PARE_OK) {
        pare_dnnl_release(d);
        p->state = NULL;
    }
    return st;
}

#define VARIANT(suffix, family)                                                                    \
    static bool may##suffix(const pare_prep *p) { return can(p, family); }                         \
    static pare_status make##suffix(pare_prep *p) { return prepare(p, family); }                   \
    const pare_kernel pare_onednn_conv##suffix = {.name = "onednn_conv" #suffix,                   \
                                                  .can = may##suffix,                              \
                                                  .prepare = make##suffix,                         \
                                                  .bind = pare_dnnl_bind,                          \
                                                  .run = pare_dnnl_run,                            \
                                                  .unbind = pare_dnnl_unbind,                      \
                                                  .release = pare_dnnl_release}

VARIANT(, NO_FAMILY);
VARIANT(_brg, BRG);
VARIANT(_jit, JIT);
VARIANT(_gemm, GEMM);
