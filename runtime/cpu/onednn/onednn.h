/* SPDX-License-Identifier: Apache-2.0 */
/* oneDNN 2.x after a small face: a node is one primitive and a list of slots that say where each
   of its arguments is. Primitives are made while preparing, memory objects while binding; a run
   sets the pointers that changed and executes. Only files onednn*.c include this header. */
#ifndef PARE_RUNTIME_CPU_ONEDNN_ONEDNN_H
#define PARE_RUNTIME_CPU_ONEDNN_ONEDNN_H

#include "runtime/ops/product.h"
#include "runtime/cpu/float16.h"

#include <dnnl.h>

enum { PARE_DNNL_SLOTS = 8 };

typedef enum pare_dnnl_place {
    PARE_DNNL_IN,     /* call->in[index] */
    PARE_DNNL_OUT,    /* call->out[index] */
    PARE_DNNL_FIXED,  /* data: a constant or packed weight */
    PARE_DNNL_SCRATCH /* offset in call->scratch */
} pare_dnnl_place;

typedef struct pare_dnnl_slot {
    int arg; /* DNNL_ARG_... */
    pare_dnnl_place place;
    int index;
    void *data;
    size_t offset;
    pare_dtype half; /* f16, bf16: widened to f32 at offset before, or narrowed from there after */
    bool flip;       /* u8 given where oneDNN takes s8: copied to offset less 128 before */
    int64_t count;   /* elements, for half and flip */
    dnnl_memory_desc_t desc;
    dnnl_primitive_t pack; /* a weight that is no constant: reordered from plain to offset before;
                              else NULL */
    dnnl_memory_desc_t plain;
} pare_dnnl_slot;

typedef struct pare_dnnl {
    dnnl_engine_t engine;
    dnnl_primitive_t primitive;
    pare_dnnl_slot slot[PARE_DNNL_SLOTS];
    int count, output;    /* output: the slot of DNNL_ARG_DST */
    int threads;          /* the primitive was made for */
    int residual;         /* input that is put where the output goes before the run; -1: none */
    float residual_scale; /* of an 8-bit residual after an f32 output */
    int32_t residual_zero;
    size_t scratch;
} pare_dnnl;

/* A new, empty node in the plan's arena with its engine; -1 as residual. */
PARE_NODISCARD pare_status pare_dnnl_new(pare_prep *prep, pare_dnnl **out);
void pare_dnnl_release(void *state);

/* Fails with oneDNN's status in words. */
pare_status pare_dnnl_fail(const pare_node *node, dnnl_status_t status, const char *what);

dnnl_data_type_t pare_dnnl_type(pare_dtype dtype); /* f16, bf16 are f32 here; undef: none */

/* Appends a slot, whose desc it copies. */
pare_dnnl_slot *pare_dnnl_add(pare_dnnl *d, int arg, pare_dnnl_place place, int index, void *data,
                              const dnnl_memory_desc_t *desc);
/* A slot for in[index]: constants stay where they are (f16 and bf16: widened into the arena),
   f16 and bf16 activations get room in scratch. */
PARE_NODISCARD pare_status pare_dnnl_add_in(pare_prep *prep, pare_dnnl *d, int arg, int index,
                                            const dnnl_memory_desc_t *desc);
PARE_NODISCARD pare_status pare_dnnl_add_out(pare_prep *prep, pare_dnnl *d,
                                             const dnnl_memory_desc_t *desc);
/* A weight, reordered from its plain form to the one the primitive wants: a constant once, in the
   arena; another, which must be f32, in scratch before each run. */
PARE_NODISCARD pare_status pare_dnnl_add_packed(pare_prep *prep, pare_dnnl *d, int arg, int index,
                                                const dnnl_memory_desc_t *plain,
                                                const dnnl_memory_desc_t *wanted);

/* target = source in another memory format. */
dnnl_status_t pare_dnnl_reorder(dnnl_engine_t engine, const dnnl_memory_desc_t *from, void *source,
                                const dnnl_memory_desc_t *to, void *target);

/* Makes the primitive and the scratchpad's slot; prep->scratch and prep->state are set. */
PARE_NODISCARD pare_status pare_dnnl_make(pare_prep *prep, pare_dnnl *d,
                                          const_dnnl_primitive_desc_t desc);

/* Attributes of a fused node: user scratchpad, output scales, zero points, residual sum,
   activation. mask: of the output's axes that scales run along. False where oneDNN cannot say it.
 */
typedef struct pare_dnnl_attr {
    const pare_act *act;
    const pare_quant_args *q; /* NULL: float */
    const pare_epilogue *epilogue;
    const float *scale;
    int64_t scale_count;
    int mask;
    bool sum;    /* there is a residual */
    float alpha; /* float: factor of the product, bias included */
} pare_dnnl_attr;
bool pare_dnnl_attr_make(const pare_dnnl_attr *in, dnnl_primitive_attr_t *out);

/* Threads worth having for this much work. */
int pare_dnnl_threads(const pare_prep *prep, double macs, bool int8);

/* Primitives made and run by this thread from now on use this many. */
void pare_dnnl_use_threads(int threads);

/* Sets the residual: shares its memory where it dies with the node, else it is copied each run. */
void pare_dnnl_set_residual(pare_prep *prep, pare_dnnl *d, int index, const pare_quant_args *q);

/* May a residual of this view be summed into this output? */
bool pare_dnnl_residual_fits(const pare_view *z, const pare_view *y);

pare_status pare_dnnl_bind(pare_call *call, pare_arena *arena);
pare_status pare_dnnl_run(const pare_call *call);
void pare_dnnl_unbind(void *bound);

#endif
