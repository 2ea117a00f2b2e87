/* SPDX-License-Identifier: Apache-2.0 */
/* What a kernel is, for every backend. A node's life: infer (ops.h), prepare once per plan, bind
   once per runner, run many times. run never allocates, searches or synchronises. */
#ifndef PARE_RUNTIME_OPS_KERNEL_H
#define PARE_RUNTIME_OPS_KERNEL_H

#include "runtime/base/pixels.h"
#include "runtime/device/device.h"
#include "runtime/graph/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a kernel sees of its node, and what it asks for, when a plan is made. */
typedef struct pare_prep {
    pare_ctx *ctx;
    const pare_node *node;
    const pare_view *in, *out;
    int in_count, out_count;
    int threads; /* the plan's; a kernel may use fewer */
    bool
        deterministic; /* results must not depend on batch or threads: see DESIGN "deterministic" */
    unsigned dying; /* bit i: input i's memory is free after this node and equals out 0's in type,
                       size and strides; it is not read through another input */
    pare_arena *arena;   /* the plan's: packed weights, descriptors */
    pare_device *device; /* where the kernel runs; NULL: the CPU */
    bool parts;      /* some of its tensors are parts of others: at multiples of 16 bytes, with gaps
                        between rows: for kernels with PARE_KERNEL_PARTS */
    unsigned packed; /* out: bit i: run does not read constant input i (prepare copied it), so that
                        its bytes need not be held, or brought to a device */
    size_t scratch;  /* out: bytes of scratch one run needs (64-byte aligned; 256 on devices) */
    size_t kept;     /* out: bytes that prepare allocated on the device, until release */
    void *state;     /* out: the kernel's own, shared by all runners, not changed by run */
    int share;       /* out: the dying input on whose memory out 0 is (a residual summed in
                        place); -1, the default: none. INPLACE kernels need not set it. */
} pare_prep;

/* One execution. data pointers are set; scratch and bound are this runner's own. */
typedef struct pare_call {
    pare_ctx *ctx;
    const pare_node *node;
    const pare_view *in, *out;
    int in_count, out_count;
    int threads;
    void *state, *bound, *scratch;
    pare_stream *stream;       /* NULL on the CPU */
    unsigned long long *fault; /* on the device, of kernels with fault(); NULL: no one looks */
    int step;                  /* what the kernel notes there besides the value */
    const pare_pixels *pixels; /* of kernels with takes_pixels(): input 0 is what these make of the
                                  bytes at raw, and is not there; NULL: it is */
    const uint8_t *raw;
} pare_call;

/* A run fails in the context of its runner, of which several may work side by side. */
#define PARE_FAIL_CALL(call, code, ...)                                                            \
    pare_fail_node_in((call)->ctx, (call)->node, PARE_##code, __VA_ARGS__)

/* A wrong value in a tensor (an index outside its axis) cannot stop work that was queued: the
   kernel continues with a harmless value, reads and writes nothing outside its tensors, and lowers
   the number at fault to step << PARE_FAULT_BITS | (value held to 40 bits + PARE_FAULT_ZERO). The
   lowest is what a run reports at its end: the first node in order, its lowest wrong value. */
enum { PARE_FAULT_BITS = 40 };
#define PARE_FAULT_ZERO (1ll << (PARE_FAULT_BITS - 1))

typedef struct pare_kernel {
    const char *name; /* says what it does: "onednn_conv_s8", "ref_softmax" */
    /* May it serve this node with these types, shapes and strides on this machine? NULL: always. */
    bool (*can)(const pare_prep *prep);
    /* Packs weights, makes descriptors; NULL: nothing to do. */
    pare_status (*prepare)(pare_prep *prep);
    /* Makes what one runner needs (memory objects), from the runner's arena; NULL: nothing. */
    pare_status (*bind)(pare_call *call, pare_arena *arena);
    pare_status (*run)(const pare_call *call);
    void (*unbind)(void *bound);  /* frees what bind got outside the arena; or NULL */
    void (*release)(void *state); /* frees what prepare got outside the arena; or NULL */
    /* Fails with the message for a wrong value that run's work noted at call->fault; or NULL. */
    pare_status (*fault)(const pare_call *call, int64_t value);
    /* The shapes of all outputs, of operators whose shapes depend on the values of inputs (how many
       are not zero): asked before prepare where the row's shape rule cannot say. What it found may
       stay in call->bound for the run that follows; unbind frees it. Or NULL. */
    pare_status (*measure)(pare_call *call, pare_shape *out);
    /* May run read stored pixels in place of input 0 of type f32 (call->pixels)? NULL: never. */
    bool (*takes_pixels)(const pare_call *call, const pare_pixels *pixels);
    unsigned flags;
} pare_kernel;

enum {
    PARE_KERNEL_INPLACE = 1,     /* out 0 may be on the memory of in 0 (same bytes, dead after) */
    PARE_KERNEL_ALIAS = 2,       /* out 0 is in 0 seen with another shape: nothing to run */
    PARE_KERNEL_REF = 4,         /* the plain C definition */
    PARE_KERNEL_INPLACE_ANY = 8, /* as INPLACE, but any one input of out 0's size will do */
    PARE_KERNEL_HOST = 16,   /* a device's step that the host runs between copies: never recorded */
    PARE_KERNEL_SPARSE = 32, /* takes only weights of which two of each four are 0 (2:4) */
    PARE_KERNEL_DRAWS = 64,  /* draws random numbers: its node is never folded into a constant */
    PARE_KERNEL_PARTS = 128  /* goes by the strides of its tensors, and is content with addresses at
                                multiples of 16 bytes */
};

int64_t pare_view_count(const pare_view *view); /* elements */
size_t pare_view_bytes(const pare_view *view);  /* of a dense tensor of this type and count */
/* Bytes from its first element to the end of its last: more where there are gaps. */
size_t pare_view_reach(const pare_view *view);
/* Row-major without gaps? Dense in N, H, W, C order (rank 4)? A tensor can be both. */
bool pare_view_rowmajor(const pare_view *view);
bool pare_view_nhwc(const pare_view *view);
bool pare_view_same_order(const pare_view *a, const pare_view *b); /* dtype apart: dims, strides */
/* Sets dims from a known shape and strides for row-major or NHWC order. */
void pare_view_set(pare_view *view, pare_dtype dtype, const pare_shape *shape, bool nhwc);

#ifdef __cplusplus
}
#endif
#endif
